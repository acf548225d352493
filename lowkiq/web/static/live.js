// Keeps a page live: each second it fetches the page's own address, and takes over what is marked data-live. Without
// this script everything reads and works as well; it only stands still.
"use strict";

const TICK = 1000; // milliseconds between an answer and the next question
const REST = 10_000; // the same while nobody sees the page: its title and its icon still tell the state
const SLOW = 5; // every so many ticks, also what the server has to read from Redis
const PATIENCE = 2_800; // milliseconds for an answer: the server has one within 2.1 s, if only that Redis is away
const STALE = 3_200; // milliseconds without good news that make a page stale: three ticks
const OLD = 4_000; // the same by the age of what is shown

const root = document.documentElement;
const body = document.body;
const light = document.getElementById("light");
const pause = document.getElementById("pause");
const banner = document.getElementById("stale");
const icon = document.querySelector("link[rel=icon]");
const isPage = light && (document.querySelector("[data-live]") || "down" in body.dataset); // a question, say, is none
let current = null, ticks = 0, paused = false, isDown = false, timer = 0;
let title = document.title, face = icon.href;

// Times of this browser's clock. It may be set, or stand still while the computer sleeps: differences only, either way.
const since = (time) => Math.abs(Date.now() - time);
let at = Number(body.dataset.at) * 1000; // when what is shown was so, by Redis's clock
let made = Date.now() - Number(body.dataset.age ?? 0) * 1000; // the same by ours
let asking = null; // since when there has been no good news
let woke = Date.now(), watched = Date.now();
let why = "";

// What elements show of a time (render/times.py), but for how long ago it is.
const STYLES = { seconds: { timeStyle: "medium" }, minutes: { timeStyle: "short" } };
// Year-month-day and 24 hours, in whichever language: as the server, logs and commands write them.
const local = (time, style) => new Date(time).toLocaleString("sv", STYLES[style]);
const clockTime = (time) => local(time, "seconds");

function show(state, text) {
  if (light && (light.dataset.state !== state || light.textContent !== text)) { // a status is read out only when it changes
    light.dataset.state = state;
    light.textContent = text;
  }
}

function set(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// ── Staleness: never "all is well" when nothing was heard ──

function watch() {
  if (since(watched) > 3 * TICK && !document.hidden) wake(); // it slept
  watched = Date.now();
  const isOld = !document.hidden && since(made) > OLD && since(woke) > TICK;
  tell(!paused && (isOld || asking !== null && since(asking) > STALE));
}

function wake() {
  woke = Date.now();
  if (isPage && !paused) start();
}

function tell(isStale) {
  if (!banner) return;
  if (isStale) {
    const time = banner.querySelector("time");
    set(time, clockTime(at));
    time.dateTime = new Date(at).toISOString();
    time.title = `${time.dateTime.slice(0, 19).replace("T", " ")} UTC`;
    set(banner.querySelector(".for"), ` (${age(since(made) / 1000)} ago)`);
    if (why) set(banner.querySelector(".cause"), why);
  }
  if (isStale && light.dataset.state === "live") show("down", "no news"); // until the tick that is under way says why
  banner.hidden = !isStale;
  root.toggleAttribute("data-stale", isStale);
  const head = isStale ? `Stale since ${clockTime(at)} · ${title}` : title;
  if (document.title !== head) document.title = head;
  const picture = isStale ? icon.dataset.stale : face;
  if (icon.getAttribute("href") !== picture) icon.href = picture;
}

// A length of time in its two highest units, as pages have it.
function age(seconds) {
  const units = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  const high = Math.max(units.findIndex(([, size]) => seconds >= size), 0);
  const [[unit, size], lower] = seconds < 1 ? [units[3]] : units.slice(high);
  const rest = lower ? Math.floor(seconds % size / lower[1]) : 0;
  return `${Math.floor(seconds / size)} ${unit}${rest ? ` ${rest} ${lower[0]}` : ""}`;
}

// What may be the matter, of what fetch, or the server, has said.
function reason(error) {
  if (!navigator.onLine) return "This computer is offline.";
  if (error.name === "TimeoutError" || error.name === "AbortError") {
    return "The web view does not answer: it may be frozen or overloaded, or a proxy or the network before it is silent.";
  }
  return "The web view can’t be reached: its supervisor may have stopped, or a proxy or the network is down.";
}

// ── Ticks ──

function start() {
  ticks = 0;
  tick(current = {}); // whatever was begun before is now of no interest
}

function stop() {
  current = null;
}

async function tick(me) {
  if (me !== current) return;
  asking ??= Date.now();
  try {
    await refresh(me);
  } catch (error) {
    isDown = true;
    if (me === current) {
      show("down", "no answer");
      why = reason(error);
    }
  }
  if (me !== current) return;
  watch();
  clearTimeout(timer);
  timer = setTimeout(tick, document.hidden ? REST : TICK, me);
}

async function refresh(me) {
  const isSlow = !document.hidden && (isDown || ticks % SLOW === 0);
  ticks += 1;
  const response = await fetch(location.href, {
    headers: { "X-Lowkiq-Live": isSlow ? "slow" : "tick" },
    cache: "no-store",
    redirect: "manual", // to where one signs in
    signal: AbortSignal.timeout(PATIENCE),
  });
  const text = response.type === "opaqueredirect" ? "" : await response.text();
  if (me !== current) return;
  const isSignedOut = response.type === "opaqueredirect" || response.status === 401;
  if (isSignedOut || "down" in body.dataset && response.status !== 503) return location.reload();
  const fresh = new DOMParser().parseFromString(text, "text/html");
  isDown = !response.ok || !response.headers.has("X-Lowkiq-At");
  if (isDown) return refused(response, fresh);
  const age = Number(response.headers.get("X-Lowkiq-Age")) * 1000, last = at;
  at = Number(response.headers.get("X-Lowkiq-At")) * 1000;
  if (at !== last) made = Date.now() - age;
  const isKept = since(made) > age + STALE; // the same picture, as young as ever: the age told is not of now
  const isNews = age < OLD && !isKept;
  if (isNews) asking = null;
  why = isKept ? "The web view answers what it has answered before: a proxy before it may keep answers."
    : "Redis does not answer, or too slowly for a new picture: see its load, its latency and the network to it.";
  show(isNews ? "live" : "down", isNews ? "live" : "no news");
  renew(fresh);
}

function refused({ status, ok }, page) {
  const says = page.querySelector("main .message")?.textContent.trim();
  if (ok) {
    why = "Something else answers in the place of the web view: a proxy before it, or a page where one signs in.";
    return show("down", "no answer");
  }
  const isRedis = status === 503 && says;
  show("down", isRedis ? "Redis is away" : `error ${status}`);
  why = isRedis ? `${says.replace(/\.?$/, ".")} Jobs may well be running still.`
    : `The web view, or a proxy before it, answers with error ${status}${says ? `: ${says}` : "."}`;
}

function renew(fresh) {
  localise(fresh);
  title = fresh.title;
  face = fresh.querySelector("link[rel=icon]").getAttribute("href");
  const focused = document.activeElement; // an element that moves loses the focus
  for (const part of fresh.querySelectorAll("[data-live]")) {
    const old = document.querySelector(`[data-live="${part.dataset.live}"]`);
    if (old && !isSelected(old)) morph(old, part);
  }
  if (focused !== document.activeElement && focused.isConnected) focused.focus({ preventScroll: true });
  growOlder();
  lookAtGroups(fresh);
  tellNews();
  for (const group of cursors.keys()) if (cursors.get(group) !== null) readOut(group);
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
  if (!paused) return wake();
  stop();
  show("paused", "paused");
  watch();
}

if (isPage) {
  pause.hidden = false;
  pause.addEventListener("click", () => setPaused(!paused));
  document.addEventListener("visibilitychange", () => { if (!document.hidden) wake(); });
  addEventListener("pageshow", (event) => { if (event.persisted) wake(); });
  addEventListener("online", wake);
  setInterval(watch, TICK / 4);
  start();
}

// ── Theme: light, dark, or as the system has it. A cookie, so that a page comes in it at once ──

const theme = document.getElementById("theme");
if (theme) {
  const NEXT = { "": "light", light: "dark", dark: "" };
  const name = () => { theme.textContent = `Theme: ${root.dataset.theme || "as the system has it"}`; };
  theme.hidden = false;
  theme.addEventListener("click", () => {
    root.dataset.theme = NEXT[root.dataset.theme ?? ""];
    const path = new URL(document.querySelector(".brand").href).pathname;
    document.cookie = `lowkiq_theme=${root.dataset.theme}; path=${path}; max-age=31536000; samesite=lax`;
    name();
  });
  name();
}

// ── Jobs: boxes, keys, what is new ──

const boxes = () => [...document.querySelectorAll('input[name="ids"][type="checkbox"]')];
const all = document.getElementById("all-of-page");
let lastBox = null;

// What is about all, and what about the selection, are never at hand together.
function countSelected() {
  const count = boxes().filter((box) => box.checked).length;
  const told = document.getElementById("selected-count"), onAll = document.getElementById("on-all");
  if (told) told.textContent = count ? `${count} selected` : "Selected";
  if (onAll) onAll.hidden = count > 0;
  for (const button of document.querySelectorAll("#on-selected button")) button.disabled = !count;
}

if (all) {
  all.hidden = false;
  all.addEventListener("change", () => {
    for (const box of boxes()) box.checked = all.checked;
    countSelected();
  });
  document.addEventListener("click", (event) => {
    const some = boxes(), here = some.indexOf(event.target), last = some.indexOf(lastBox);
    if (here < 0) return;
    if (event.shiftKey && last >= 0) {
      for (const box of some.slice(Math.min(here, last), Math.max(here, last) + 1)) box.checked = event.target.checked;
    }
    lastBox = event.target;
    countSelected();
  });
  countSelected();
}
addEventListener("pageshow", countSelected); // a browser that goes back checks boxes again

// Kinds of errors stand still as well, but for their numbers. Of a sample, one that is not in it may be there still.
let newKinds = 0;
function lookAtGroups(fresh) {
  const groups = fresh.querySelector(".groups");
  if (!groups) return;
  const now = new Set([...groups.querySelectorAll("[data-group]")].map((row) => row.dataset.group));
  for (const row of document.querySelectorAll("[data-group]")) {
    row.classList.toggle("gone", !now.delete(row.dataset.group) && !("sample" in groups.dataset));
  }
  newKinds = document.querySelector(".groups .more") ? 0 : now.size; // a page that leaves some out can't tell new ones
}

// Rows never move: those that are gone or have changed are marked, and what is new is told.
function tellNews() {
  const heads = document.querySelector('[data-live="heads"]'), list = document.getElementById("listed");
  const news = document.getElementById("news");
  if (!heads || !news || !(heads.children.length || "all" in heads.dataset)) return;
  const now = new Map([...heads.children].map((head) => [head.dataset.row, head.dataset]));
  const shown = list ? [...list.tBodies[0].rows] : [];
  const sign = list && "down" in list.dataset ? -1 : 1;
  const end = "all" in heads.dataset ? Infinity : sign * heads.lastElementChild.dataset.order; // of what was looked at
  let gone = 0, changed = 0;
  for (const row of shown) {
    const head = now.get(row.dataset.row);
    const isGone = !head && sign * row.dataset.order < end;
    const isChanged = Boolean(head) && head.mark !== row.dataset.mark;
    row.classList.toggle("gone", isGone);
    row.classList.toggle("changed", isChanged);
    row.title = isGone ? "Gone from this list" : isChanged ? "Changed since" : "";
    gone += isGone;
    changed += isChanged;
  }
  const known = new Set(shown.map((row) => row.dataset.row));
  const added = [...now.keys()].filter((row) => !known.has(row)).length;
  const words = [added && `${added} new`, gone && `${gone} of these gone`, changed && `${changed} changed`,
    newKinds && `${newKinds} new ${newKinds === 1 ? "kind of error" : "kinds of errors"}`].filter(Boolean);
  const text = words.join(", ");
  if (news.dataset.text === text) return;
  news.dataset.text = text;
  news.hidden = !text;
  const show = document.createElement("a");
  show.href = location.href;
  show.textContent = "Show";
  show.addEventListener("click", (event) => {
    event.preventDefault();
    location.reload();
  });
  news.replaceChildren(...(text ? [`${text}: `, show] : []));
}

// Times are rendered in UTC. A title keeps that, and what is shown becomes the reader's own time.
function localise(part) {
  for (const time of part.querySelectorAll("time[data-shows]")) {
    const { shows } = time.dataset;
    if (shows === "ago") time.title = `${local(time.dateTime)} (${time.title})`;
    else time.textContent = local(time.dateTime, shows);
  }
  groupByDay(part);
  for (const zone of part.querySelectorAll(".utc")) zone.remove();
}

// Incidents stand below their days: the reader's own, not those of UTC.
function groupByDay(part) {
  const rows = [...part.querySelectorAll(".incidents li")], days = [];
  for (const row of rows) {
    const time = row.querySelector("time");
    const day = time ? new Date(time.dateTime).toLocaleDateString(undefined, { dateStyle: "full" }) : "";
    if (day !== days.at(-1)?.dataset.key) {
      const section = row.closest("section").cloneNode();
      section.dataset.key = section.ariaLabel = day;
      section.append(Object.assign(document.createElement("h2"), { textContent: day }), document.createElement("ol"));
      days.push(section);
    }
    days.at(-1).lastChild.append(row);
  }
  if (rows.length) part.querySelector(".incidents").replaceChildren(...days);
}

// What stands still otherwise grows older; what is live has its age from the server.
function growOlder() {
  for (const time of document.querySelectorAll("time[data-shows=ago]")) {
    if (time.closest("[data-live]")) continue;
    const ago = (at - new Date(time.dateTime)) / 1000;
    set(time, Math.abs(ago) < 1 ? "now" : ago > 0 ? `${age(ago)} ago` : `in ${age(-ago)}`);
  }
}

localise(document);
const { timeZone } = Intl.DateTimeFormat().resolvedOptions();
if (!timeZone.endsWith("UTC")) {
  set(document.getElementById("zone"), `Times are in your zone, ${timeZone}, unless marked UTC; point at one for UTC`);
}

const KEYS = [
  ["j, k", "next, previous row"], ["Enter", "open it"], ["x", "select it"], ["Shift-click", "select all up to there"],
  ["/", "find a job by its id"], ["g o", "overview"], ["g n", "nodes"], ["?", "these keys"],
];
let before = "";

function moveTo(step) {
  const rows = [...document.querySelectorAll("main tbody th[scope=row] a[href]")];
  const row = document.activeElement.closest?.("tbody tr");
  const here = rows.findIndex((link) => link.closest("tr") === row);
  rows[here < 0 ? (step > 0 ? 0 : rows.length - 1) : Math.max(0, Math.min(rows.length - 1, here + step))]?.focus();
}

function showKeys() {
  let dialog = document.getElementById("keys");
  if (!dialog) {
    dialog = document.createElement("dialog");
    dialog.id = "keys";
    dialog.setAttribute("aria-labelledby", "keys-title");
    const title = Object.assign(document.createElement("h2"), { id: "keys-title", textContent: "Keys" });
    const list = document.createElement("dl");
    for (const [key, does] of KEYS) {
      const [dt, dd] = [document.createElement("dt"), document.createElement("dd")];
      dt.append(Object.assign(document.createElement("kbd"), { textContent: key }));
      dd.textContent = does;
      list.append(dt, dd);
    }
    const close = Object.assign(document.createElement("button"), { type: "button", textContent: "Close" });
    close.addEventListener("click", () => dialog.close());
    dialog.append(title, list, close);
    body.append(dialog);
  }
  dialog.showModal();
}

document.addEventListener("keydown", (event) => {
  const isTyping = event.target.closest?.("input:not([type=checkbox]), textarea, select, dialog[open], [contenteditable]");
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  const key = before === "g" ? `g ${event.key}` : event.key;
  before = event.key;
  if (key === "j") moveTo(1);
  else if (key === "k") moveTo(-1);
  else if (key === "x") document.activeElement.closest?.("tr")?.querySelector('input[name="ids"]')?.click();
  else if (key === "?") showKeys();
  else if (key === "/") document.getElementById("find")?.focus();
  else if (key.startsWith("g ")) document.querySelector(`[aria-keyshortcuts="${CSS.escape(key)}"]`)?.click();
  else return;
  event.preventDefault();
});

// ── Charts: one cursor for all of a group ──

// Each chart has columns, with the time and the value of each line in their titles: they are what is read out. A cursor is a
// share of the width, since all charts of a group show the same time.
const cursors = new Map();
const MOMENT = /\b(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d) UTC\b/g;

function columnAt(plot, share) {
  const columns = [...plot.querySelectorAll(".column")];
  const x = share * plot.viewBox.baseVal.width;
  return columns.findLast((column) => column.x.baseVal.value <= x) ?? columns[0];
}

function readOut(group) {
  let time = "", notes = [];
  const cursor = cursors.get(group) ?? null;
  for (const figure of group.querySelectorAll(".chart")) {
    const plot = figure.querySelector(".plot");
    plot.querySelector(".cursor")?.remove();
    const column = cursor === null ? null : columnAt(plot, cursor);
    const [at, ...lines] = column?.querySelector("title").textContent.split("\n") ?? [];
    const names = [...figure.querySelectorAll(".legend")];
    names.forEach((legend, number) => {
      const shown = legend.querySelector("b"), name = legend.dataset.name;
      set(shown, column ? ` ${lines[number].slice(name.length + 1).replace(" a second", "")}` : "");
    });
    if (!column) continue;
    time = at;
    notes = lines.slice(names.length);
    const line = document.createElementNS(plot.namespaceURI, "line");
    const x = column.x.baseVal.value + column.width.baseVal.value / 2;
    for (const [name, value] of Object.entries({ class: "cursor", x1: x, x2: x, y1: 0, y2: plot.viewBox.baseVal.height })) {
      line.setAttribute(name, value);
    }
    plot.append(line);
  }
  const told = group.parentElement.querySelector(".readout");
  const says = [time, ...notes].join(" · ").replace(MOMENT, (_, day, clock) => local(`${day}T${clock}Z`));
  if (told) set(told, says); // as text: what it says comes from anybody
}

function point(group, share) {
  cursors.set(group, share === null ? null : Math.min(Math.max(share, 0), 1));
  readOut(group);
}

for (const group of document.querySelectorAll(".charts")) {
  group.addEventListener("pointermove", (event) => {
    const plot = event.target.closest(".frame")?.querySelector(".plot");
    if (!plot) return;
    const { left, width } = plot.getBoundingClientRect();
    point(group, (event.clientX - left) / width);
  });
  group.addEventListener("pointerleave", () => point(group, null));
  group.addEventListener("blur", () => point(group, null));
  group.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.key === "Escape") point(group, null);
    if (!step || event.target !== group) return;
    event.preventDefault();
    point(group, (cursors.get(group) ?? 1) + step / 60);
  });
}

// ── Copying: data-copy names the element whose text is meant, or is the text; empty, it means the block before ──

document.documentElement.dataset.copies = ""; // the sheet hides these buttons where no script can do it
const told = document.createElement("p");
told.id = "copied";
told.setAttribute("role", "status"); // is read out when its text changes, so it is there before
body.append(told);
let forgetting = 0;

document.addEventListener("click", async (event) => {
  const button = event.target.closest?.("[data-copy]");
  if (!button) return;
  const { copy } = button.dataset;
  const block = copy ? document.getElementById(copy) : button.previousElementSibling;
  const text = block ? block.textContent.trim() : copy;
  const isDone = await navigator.clipboard?.writeText(text).then(() => true, () => false) ?? copyOld(text);
  told.textContent = isDone ? "Copied" : "This browser refuses to copy";
  clearTimeout(forgetting);
  forgetting = setTimeout(() => { told.textContent = ""; }, 3 * TICK);
});

// By plain HTTP browsers have no clipboard but this.
function copyOld(text) {
  const field = body.appendChild(Object.assign(document.createElement("textarea"), { value: text, className: "hidden" }));
  field.select();
  const isDone = document.execCommand("copy");
  field.remove();
  return isDone;
}

// ── Undo: how long it can still be asked for, also when the page is opened again ──

const left = document.querySelector("[data-left]");
if (left) {
  const form = left.closest("form"), key = `lowkiq undo ${form.elements.undo.value}`;
  const until = Number(sessionStorage.getItem(key)) || Date.now() + 1000 * Number(left.dataset.left);
  sessionStorage.setItem(key, until);
  const count = () => {
    const seconds = Math.ceil((until - Date.now()) / 1000);
    left.textContent = Math.max(seconds, 0);
    if (seconds <= 0) { clearInterval(counting); form.closest(".toast").classList.remove("toast"); form.remove(); }
  };
  const counting = setInterval(count, 1000);
  count();
}
