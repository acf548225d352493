// Keeps a page live: each second it fetches the page's own address, and takes over what is marked data-live. Without
// this script everything reads and works as well; it only stands still.
"use strict";

const TICK = 1000; // milliseconds between an answer and the next question
const SLOW = 5; // every so many ticks, also what the server has to read from Redis
const PATIENCE = 10_000; // milliseconds for an answer

const body = document.body;
const light = document.getElementById("light");
const pause = document.getElementById("pause");
let current = null, ticks = 0, paused = false, isDown = false;

function show(state, text) {
  if (light && (light.dataset.state !== state || light.textContent !== text)) { // a status is read out only when it changes
    light.dataset.state = state;
    light.textContent = text;
  }
}

function start() {
  ticks = 0;
  tick(current = {}); // whatever was begun before is now of no interest
}

function stop() {
  current = null;
}

async function tick(me) {
  if (me !== current) return;
  try {
    await refresh(me);
  } catch {
    isDown = true;
    if (me === current) show("down", "no answer");
  }
  setTimeout(tick, TICK, me);
}

async function refresh(me) {
  const headers = { "X-Lowkiq-Live": isDown || ticks % SLOW === 0 ? "slow" : "tick" };
  ticks += 1;
  const response = await fetch(location.href, { headers, cache: "no-store", signal: AbortSignal.timeout(PATIENCE) });
  const text = await response.text();
  if (me !== current) return;
  const isSignedOut = response.redirected || response.status === 401;
  if (isSignedOut || "down" in body.dataset && response.status !== 503) return location.reload();
  isDown = !response.ok;
  if (isDown) return show("down", response.status === 503 ? "Redis is away" : `error ${response.status}`);
  show("live", "live");
  renew(new DOMParser().parseFromString(text, "text/html"));
}

function renew(fresh) {
  if (document.title !== fresh.title) document.title = fresh.title;
  for (const part of fresh.querySelectorAll("[data-live]")) {
    const old = document.querySelector(`[data-live="${part.dataset.live}"]`);
    if (old && !isSelected(old)) morph(old, part);
  }
}

// Text that somebody is about to copy stays.
function isSelected(element) {
  const selection = getSelection();
  return !selection.isCollapsed && selection.containsNode(element, true);
}

// Changes only what differs: focus, scrolling, checked boxes, open details and what one points at stay as they are.
function morph(old, fresh) {
  if (old.nodeName !== fresh.nodeName || old.nodeType !== fresh.nodeType) return old.replaceWith(fresh);
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && !(name === "open" || name === "hidden")) old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (name !== "open" && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  morphChildren(old, fresh);
}

function morphChildren(old, fresh) {
  const keyed = new Map([...old.children].filter((child) => child.dataset?.key).map((child) => [child.dataset.key, child]));
  let here = old.firstChild;
  for (const child of [...fresh.childNodes]) {
    const same = child.dataset?.key ? keyed.get(child.dataset.key) : here?.dataset?.key ? null : here;
    if (!same) {
      old.insertBefore(child, here);
    } else {
      if (same !== here) old.insertBefore(same, here);
      here = same.nextSibling;
      morph(same, child);
    }
  }
  while (here) {
    const next = here.nextSibling;
    here.remove();
    here = next;
  }
}

function setPaused(value) {
  paused = value;
  pause.textContent = paused ? "Resume" : "Pause";
  if (!paused) return start();
  stop();
  show("paused", "paused");
}

// A question, say, has nothing that is live, and its address is no page.
if (light && (document.querySelector("[data-live]") || "down" in body.dataset)) {
  pause.hidden = false;
  pause.addEventListener("click", () => setPaused(!paused));
  document.addEventListener("visibilitychange", () => {
    if (paused) return;
    if (document.hidden) stop(); else start();
  });
  if (!document.hidden) start();
}

const all = document.getElementById("all-of-page");
if (all) {
  all.hidden = false;
  const boxes = () => [...document.querySelectorAll('input[name="ids"][type="checkbox"]')];
  all.addEventListener("change", () => boxes().forEach((box) => { box.checked = all.checked; }));
}
