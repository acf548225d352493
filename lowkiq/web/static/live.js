// Keeps a page live: at each tick of the server it fetches the page's own address, and takes over what is marked
// data-live. Without this script everything reads and works as well; it only stands still.
"use strict";

const SLOW = 5; // every so many ticks, also what the server has to read from Redis
const RETRY = 3000; // milliseconds until we ask a server that is away again

const body = document.body;
const hasParts = document.querySelector("[data-live]") !== null; // a question, say, has none, and its address is no page
const light = document.getElementById("light");
const pause = document.getElementById("pause");
let stream = null, retry = 0, ticks = 0, fetching = false, paused = false, isDown = "down" in body.dataset;

function show(state, text) {
  if (light && (light.dataset.state !== state || light.textContent !== text)) { // a status is read out only when it changes
    light.dataset.state = state;
    light.textContent = text;
  }
}

function open() {
  close();
  stream = new EventSource(body.dataset.events);
  stream.addEventListener("tick", tick);
  stream.addEventListener("down", () => { isDown = true; show("down", "Redis is away"); });
  stream.onerror = () => {
    show("down", "connection lost");
    if (stream.readyState === EventSource.CLOSED) retry = setTimeout(open, RETRY); // else the browser asks again itself
  };
}

function close() {
  clearTimeout(retry);
  if (stream) stream.close();
  stream = null;
}

async function tick() {
  if (isDown && "down" in body.dataset) return location.reload();
  const isSlow = isDown || ticks % SLOW === SLOW - 1 || !("pace" in body.dataset) && ticks === 0;
  isDown = false;
  show("live", "live");
  ticks += 1;
  if (fetching || !hasParts || ("pace" in body.dataset && !isSlow)) return;
  fetching = true;
  try {
    await refresh(isSlow ? "slow" : "tick");
  } catch {
    show("down", "no answer");
  } finally {
    fetching = false;
  }
}

async function refresh(pace) {
  const response = await fetch(location.href, { headers: { "X-Lowkiq-Live": pace }, cache: "no-store" });
  if (response.redirected || response.status === 401) return location.reload(); // we are signed out
  if (!response.ok) return show("down", response.status === 503 ? "Redis is away" : `error ${response.status}`);
  const fresh = new DOMParser().parseFromString(await response.text(), "text/html");
  if (paused) return;
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
  if (!paused) return open();
  close();
  show("paused", "paused");
}

if (body.dataset.events) {
  if (pause) {
    pause.hidden = false;
    pause.addEventListener("click", () => setPaused(!paused));
  }
  document.addEventListener("visibilitychange", () => {
    if (paused) return;
    if (document.hidden) close(); else open();
  });
  if (!document.hidden) open();
}

const all = document.getElementById("all-of-page");
if (all) {
  all.hidden = false;
  const boxes = () => [...document.querySelectorAll('input[name="ids"][type="checkbox"]')];
  all.addEventListener("change", () => boxes().forEach((box) => { box.checked = all.checked; }));
}
