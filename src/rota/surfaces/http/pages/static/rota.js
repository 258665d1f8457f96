// What makes Rota's pages livelier. Every page works without it.
"use strict";

const page = document.documentElement;
const about = document.body.dataset;
const SOON_MS = 400; // events that come together are one look
const POLL_MS = 4000; // how often a page looks where there are no events
const AT_LEAST_MS = 15000; // and where there are, for what no event tells

// ---- times: the server writes them in the zone of this browser, which it learns here, or in one that was chosen --------

const keep = (name, value) => {
  document.cookie = `${name}=${encodeURIComponent(value)}; path=${about.root}; max-age=31536000; samesite=strict`;
};
const kept = (name) => decodeURIComponent(document.cookie.match(`(?:^|; )${name}=([^;]*)`)?.[1] ?? "");

function learnZone() {
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
  if (kept("rota_browser_zone") === zone) return;
  keep("rota_browser_zone", zone);
  // Only where the cookie was taken, so that a page is never loaded again and again.
  if (about.zoneOf === "browser" && about.zone !== zone && kept("rota_browser_zone") === zone) location.reload();
}

document.getElementById("zone")?.addEventListener("focus", (event) => {
  const offered = document.getElementById("zones");
  if (offered.options.length < 3) offered.append(...Intl.supportedValuesOf("timeZone").map((each) => new Option("", each)));
  event.target.select();
});

// ---- dark and light --------------------------------------------------------------------------------------------------

document.addEventListener("submit", (event) => {
  if (!event.target.matches("form[data-theme-switch]")) return;
  event.preventDefault();
  const dark = page.dataset.theme ? page.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  page.dataset.theme = dark ? "light" : "dark";
  keep(event.target.dataset.themeSwitch, page.dataset.theme);
});

// ---- the door: a link from the terminal carries the token behind the #, which no server sees ----------------------------

const door = document.querySelector("form[data-door]");

function enter() {
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  if (!door || !token) return;
  history.replaceState(null, "", location.pathname + location.search);
  door.elements.token.value = token;
  door.submit();
}

enter();
addEventListener("hashchange", enter);

// ---- asking once: the server's own question, shown in a dialog ---------------------------------------------------------

document.addEventListener("submit", async (event) => {
  const form = event.target;
  const pressed = event.submitter;
  if (!form.matches("form[data-ask]") || pressed?.matches("[data-plain]")) return;
  event.preventDefault();
  const sent = new URLSearchParams(new FormData(form, pressed));
  let answer;
  try {
    answer = await fetch(form.action, { method: "POST", body: sent, headers: { "x-rota-part": "1", accept: "text/html" } });
  } catch {
    resend(form, pressed);
    return;
  }
  if (!answer.headers.get("x-rota-ask")) {
    if (answer.redirected) location.assign(answer.url);
    else resend(form, pressed); // it was refused: let the page with the reason come
    return;
  }
  const asked = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector(".ask");
  const dialog = document.createElement("dialog");
  dialog.setAttribute("aria-label", "Are you sure?");
  dialog.append(document.importNode(asked, true));
  document.body.append(dialog);
  dialog.addEventListener("close", () => dialog.remove());
  dialog.querySelector("[data-no]").addEventListener("click", (no) => {
    no.preventDefault();
    dialog.close();
  });
  dialog.showModal();
  dialog.querySelector("[data-no]").focus();
});

// A form that a script sends leaves out the button that was pressed.
function resend(form, pressed) {
  if (pressed?.name) {
    const field = document.createElement("input");
    Object.assign(field, { type: "hidden", name: pressed.name, value: pressed.value });
    form.append(field);
  }
  form.submit();
}

// ---- SQL: Ctrl+Enter runs it

document.addEventListener("keydown", (event) => {
  const { target, key, ctrlKey, metaKey } = event;
  if (key === "Enter" && (ctrlKey || metaKey) && target.matches("[data-run]")) target.form.requestSubmit();
});

// ---- rows that are ticked: how many there are, and all of them at once -------------------------------------------------

const boxes = (root) => [...root.querySelectorAll("input[name=row]")];

function countTicked() {
  const form = document.getElementById("rows");
  if (!form) return;
  const all = boxes(document);
  const ticked = all.filter((each) => each.checked).length;
  const shown = form.querySelector("[data-selected]");
  shown.hidden = false;
  shown.textContent = `${ticked} selected`;
  for (const each of form.querySelectorAll("button")) each.disabled = !ticked;
  form.querySelector("[data-select-all]").textContent = ticked && ticked === all.length ? "Select none" : "Select all on this page";
}

document.addEventListener("change", (event) => {
  if (event.target.matches("input[name=row]")) countTicked();
});
document.addEventListener("click", (event) => {
  if (!event.target.matches("[data-select-all]")) return;
  event.preventDefault();
  const all = boxes(document);
  const tick = !all.every((each) => each.checked);
  for (const each of all) each.checked = tick;
  countTicked();
});

// ---- live: what is marked is fetched again and put in place ------------------------------------------------------------

const live = () => document.querySelectorAll("[data-live]");
let looking = false;
let dragging = null;

const busy = (each) => {
  const inside = document.activeElement;
  if (dragging || document.querySelector("dialog[open]")) return true;
  return each.contains(inside) && inside.matches("input:not([name=row]), select, textarea");
};

async function look() {
  if (looking || document.hidden || !live().length) return;
  looking = true;
  try {
    const answer = await fetch(location.href, { headers: { "x-rota-part": "1", accept: "text/html" } });
    if (answer.status === 401) location.reload();
    if (!answer.ok) return;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    // Another zone was chosen in another window: no page has two.
    if (fresh.querySelector("main").dataset.zone !== about.zone) {
      if (![...live()].some(busy)) location.reload();
      return;
    }
    for (const old of live()) put(old, fresh.getElementById(old.id));
  } catch {
    // The server is away: the next look will tell.
  } finally {
    looking = false;
  }
}

function put(old, fresh) {
  if (!fresh || busy(old)) return;
  const told = fresh.innerHTML;
  if (seen.get(old.id) === told) return;
  seen.set(old.id, told);
  const opened = new Set([...old.querySelectorAll("details[open][id]")].map((each) => each.id));
  const focused = old.contains(document.activeElement) ? document.activeElement.id : "";
  const focusedRow = focused ? null : document.activeElement?.matches("input[name=row]") ? document.activeElement.value : null;
  const ticked = new Set(boxes(old).filter((each) => each.checked).map((each) => each.value));
  const log = old.querySelector(".log");
  const followed = !log || log.scrollTop + log.clientHeight >= log.scrollHeight - 8;
  const at = log ? log.scrollTop : 0;
  old.replaceChildren(...document.importNode(fresh, true).childNodes);
  for (const each of old.querySelectorAll("details[id]")) if (opened.has(each.id)) each.open = true;
  for (const each of boxes(old)) {
    each.checked = ticked.has(each.value);
    if (each.value === focusedRow) each.focus();
  }
  countTicked();
  const after = old.querySelector(".log");
  if (after) after.scrollTop = followed ? after.scrollHeight : at;
  if (focused) document.getElementById(focused)?.focus();
}

const seen = new Map();
let timer = 0;
let stream = null;
const soon = () => {
  if (!timer) timer = setTimeout(() => { timer = 0; look(); }, SOON_MS);
};

function listen() {
  const from = about.events;
  if (!from || stream || document.hidden || !live().length) return;
  stream = new EventSource(from);
  for (const kind of ["job.created", "job.started", "job.progress", "job.ended", "schedule.missed", "schedule.refused", "schedule.skipped", "schedule.skipped_planned", "schedule.overdue", "definitions", "counts", "skipped", "gap"]) {
    stream.addEventListener(kind, soon);
  }
  stream.onmessage = soon;
}

// A page that nobody sees holds no connection: a browser has few of them.
document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    stream?.close();
    stream = null;
  } else {
    listen();
    look();
  }
});
addEventListener("pagehide", () => stream?.close());

// ---- the queue: drag a row, or use its buttons ---------------------------------------------------------------------------

const rowOf = (event) => event.target.closest?.("tr[draggable]");
const below = (event, row) => event.clientY > row.getBoundingClientRect().top + row.offsetHeight / 2;
const clean = () => document.querySelectorAll(".over-above, .over-below").forEach((each) => each.classList.remove("over-above", "over-below"));

document.addEventListener("dragstart", (event) => {
  dragging = rowOf(event);
  if (!dragging) return;
  event.dataTransfer.effectAllowed = "move";
  event.dataTransfer.setData("text/plain", dragging.dataset.job);
  dragging.classList.add("dragged");
});
document.addEventListener("dragover", (event) => {
  const row = rowOf(event);
  clean();
  if (!dragging || !row || row === dragging || row.dataset.line !== dragging.dataset.line) return;
  event.preventDefault();
  row.classList.add(below(event, row) ? "over-below" : "over-above");
});
document.addEventListener("dragend", () => {
  dragging?.classList.remove("dragged");
  dragging = null;
  clean();
});
document.addEventListener("drop", (event) => {
  const row = rowOf(event);
  const form = document.getElementById("mover");
  if (!dragging || !row || !form || row === dragging) return;
  event.preventDefault();
  const move = document.createElement("input");
  move.type = "hidden";
  move.name = "move";
  move.value = `${dragging.dataset.job} ${below(event, row) ? "after" : "before"} ${row.dataset.job}`;
  form.append(move);
  form.submit();
});

// ---- begin -----------------------------------------------------------------------------------------------------------

const here = document.querySelector("nav [aria-current=page]");
if (here) {
  // On a phone the menu is scrolled sideways; elsewhere this changes nothing.
  const menu = here.closest("nav");
  menu.scrollLeft = here.offsetLeft - (menu.clientWidth - here.offsetWidth) / 2;
}
countTicked();
learnZone();
for (const log of document.querySelectorAll(".log")) log.scrollTop = log.scrollHeight;
listen();
setInterval(look, about.events ? AT_LEAST_MS : POLL_MS);
// Lines of a log are no events.
setInterval(() => document.querySelector("[data-grows]") && look(), 1500);
