// What pages do beyond links and forms. Each page works without it; nothing here is in a page.

const root = document.documentElement;
root.classList.add("scripted");

const timeFormat = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const shortFormat = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
const dayFormat = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeZone: "UTC" });
const numberFormat = new Intl.NumberFormat(undefined, { maximumFractionDigits: 12 });

// Times and numbers as the reader's language and zone have them. Decimal strings stay exact.
function localize(scope) {
  for (const time of scope.querySelectorAll("time[datetime]")) {
    time.title = time.dateTime;
    const isDay = time.dateTime.length === 10;
    const format = isDay ? dayFormat : time.closest("td, .gallery") ? shortFormat : timeFormat;
    time.textContent = format.format(new Date(time.dateTime));
  }
  for (const number of scope.querySelectorAll("data.num")) localizeNumber(number);
}

// Two decimals are large, the others small.
function localizeNumber(number) {
  let [large, rest] = ["", ""];
  for (const { type, value } of numberFormat.formatToParts(number.value)) {
    large += type === "fraction" ? value.slice(0, 2) : value;
    if (type === "fraction") rest = value.slice(2);
  }
  number.replaceChildren(large);
  if (!rest) return;
  const small = document.createElement("small");
  small.textContent = rest;
  number.append(small);
}

async function fetchPage(url, options) {
  const response = await fetch(url, { credentials: "same-origin", ...options });
  return parsed(response);
}

async function parsed(response) {
  if (response.redirected && new URL(response.url).pathname === "/login") {
    location.assign(response.url);
    return new Promise(() => {}); // This page is left.
  }
  return new DOMParser().parseFromString(await response.text(), "text/html");
}

const FOCUSABLE = "a, button, summary, audio, video, [tabindex]";

// Takes parts of a page that was fetched, by their ids, into this one.
function adopt(page, ids) {
  for (const id of ids) {
    const [old, fresh] = [document.getElementById(id), page.getElementById(id)];
    if (!old || !fresh) continue;
    localize(fresh);
    const active = old.contains(document.activeElement) ? document.activeElement : null;
    const place = [...old.querySelectorAll(FOCUSABLE)].indexOf(active);
    for (const open of old.querySelectorAll("details[open]")) {
      const title = open.firstElementChild.textContent;
      const all = [...fresh.querySelectorAll("details")];
      const same = all.find((other) => other.firstElementChild.textContent === title);
      if (same) same.open = true;
    }
    old.replaceWith(document.adoptNode(fresh));
    if (!active) continue;
    // Whoever types on goes on typing.
    const same = active.name && fresh.querySelector(`[name="${CSS.escape(active.name)}"]`);
    if (!same) {
      const twin = fresh.querySelectorAll(FOCUSABLE)[place];
      if (twin?.textContent === active.textContent) twin.focus();
      continue;
    }
    same.value = active.value;
    same.focus();
    if (active.type === "text") same.setSelectionRange(active.selectionStart, active.selectionEnd);
  }
}

// The balance stands in the sidebar, in the menu of narrow screens and next to a price.
function showBalance(page) {
  const fresh = page.querySelector("[data-balance]");
  if (!fresh) return;
  localize(fresh);
  let changed = false;
  for (const old of document.querySelectorAll("[data-balance]")) {
    if (old.textContent === fresh.textContent) continue;
    old.replaceChildren(...fresh.cloneNode(true).childNodes);
    changed = true;
  }
  // Whether a price can be paid depends on the balance.
  if (changed) for (const form of document.querySelectorAll("form[data-run]")) updates.get(form)?.();
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  try {
    await navigator.clipboard.writeText(button.dataset.copy);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Press Ctrl+C";
    const text = button.closest(".code, .copyable").querySelector("code");
    getSelection().selectAllChildren(text);
  }
  setTimeout(() => { button.textContent = "Copy"; }, 1600);
});

// A menu or a question closes with Escape, and with a click elsewhere.
function closeDetails(except) {
  for (const open of document.querySelectorAll("details:is(.menu, .confirm)[open]")) {
    if (open.contains(except)) continue;
    // What was within it cannot keep the focus.
    if (open.contains(document.activeElement)) open.firstElementChild.focus();
    open.open = false;
  }
}
document.addEventListener("click", (event) => closeDetails(event.target));
document.addEventListener("keydown", (event) => { if (event.key === "Escape") closeDetails(null); });

// A job that runs: its part of the page is fetched until it has ended.
const watched = new WeakSet();
async function watch(part) {
  for (let look = 0; part?.dataset.live && !watched.has(part); look += 1) {
    watched.add(part);
    const isLeft = () => document.getElementById(part.id) !== part;
    // Nobody is disturbed in answering a question.
    const isAsked = () => part.querySelector("details.confirm[open]");
    let page;
    while (!page) {
      const delay = look < 5 ? 2000 : 5000;
      await new Promise((done) => setTimeout(done, document.hidden ? 10000 : delay));
      if (isLeft()) return;
      if (isAsked()) continue;
      // The server may be restarting.
      page = await fetchPage(part.dataset.live).catch(() => null);
      if (isLeft()) return;
      if (isAsked() || !page?.getElementById(part.id)) page = null;
    }
    adopt(page, [part.id]);
    showBalance(page);
    part = document.getElementById(part.id);
  }
}
function watchAll() {
  for (const part of document.querySelectorAll("[data-live]")) watch(part);
}

// A form's address is read as an attribute: it has buttons that are called `action`.

// A form with parts that depend on its fields: a price, code, a preview.
const updates = new WeakMap();
function follow(form) {
  const parts = form.dataset.follows.split(" ");
  let timer, latest = 0;
  const preview = () => {
    const body = new URLSearchParams(new FormData(form));
    body.set("action", "preview");
    body.delete("generation"); // Its result is not looked at.
    return fetchPage(form.getAttribute("action"), { method: "POST", body });
  };
  async function update() {
    const mine = ++latest;
    try {
      const page = await preview();
      if (mine !== latest) return;
      adopt(page, parts);
      showBalance(page);
    } catch {
      // The next change asks again.
    }
  }
  updates.set(form, update);
  form.addEventListener("input", (event) => {
    clearTimeout(timer);
    if (event.target.dataset.reload) return;
    timer = setTimeout(update, 400);
  });
  form.addEventListener("change", async (event) => {
    const wanted = event.target.dataset.reload;
    if (!wanted) return;
    clearTimeout(timer);
    const mine = ++latest;
    const page = await preview();
    if (mine === latest) adopt(page, [...parts, ...wanted.split(" ")]);
  });
}

// The events of a stream, as they arrive.
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    rest += value;
    let end;
    while ((end = rest.indexOf("\n\n")) >= 0) {
      const event = { name: "", data: "" };
      for (const line of rest.slice(0, end).split("\n")) {
        if (line.startsWith("event:")) event.name = line.slice(6).trim();
        if (line.startsWith("data:")) event.data += line.slice(5).trimStart();
      }
      rest = rest.slice(end + 2);
      if (event.name) yield { name: event.name, data: JSON.parse(event.data) };
    }
  }
}

// A text arrives piece by piece; the page with its price takes its place in the end.
async function stream(form, body) {
  const response = await fetch(form.getAttribute("action"), {
    method: "POST", body, credentials: "same-origin", headers: { accept: "text/event-stream" },
  });
  if (!response.headers.get("content-type")?.startsWith("text/event-stream")) {
    return parsed(response);
  }
  const target = document.getElementById("result");
  target.replaceChildren();
  const text = document.createElement("p");
  text.className = "prose";
  text.setAttribute("aria-live", "polite");
  target.append(text);
  let uuid;
  for await (const { name, data } of events(response)) {
    if (name === "generation") {
      uuid = data.uuid;
      updates.get(form)?.(); // Its credits are on hold now.
    }
    if (name === "delta") text.append(data.text);
  }
  return fetchPage(`${form.getAttribute("action").split("?")[0]}?generation=${uuid}`);
}

// What was refused by a page that has no place for it.
function refuse(page) {
  const notice = document.createElement("div");
  notice.className = "notice bad";
  notice.setAttribute("role", "alert");
  for (const told of page.querySelectorAll("main :is(h1, p):not(:has(a))")) {
    const line = document.createElement("p");
    line.textContent = told.textContent;
    notice.append(line);
  }
  document.getElementById("problems").replaceChildren(notice);
}

function run(form) {
  form.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    const button = form.querySelector("[data-run]");
    if (!button.disabled) form.requestSubmit(button);
  });
  form.addEventListener("submit", async (event) => {
    if (event.submitter?.value === "preview") return;
    event.preventDefault();
    const [button, body] = [form.querySelector("[data-run]"), new URLSearchParams(new FormData(form))];
    button.disabled = true;
    document.getElementById("result").setAttribute("aria-busy", "true");
    try {
      const page = form.dataset.run === "stream"
        ? await stream(form, body)
        : await fetchPage(form.getAttribute("action"), { method: "POST", body });
      if (page.getElementById("result")) {
        adopt(page, ["result", "running", "problems", "ticket"]);
        showBalance(page);
      } else refuse(page);
      watchAll();
    } catch {
      // The result, and jobs that still run, stay in view.
      const failed = document.createElement("p");
      failed.className = "notice bad";
      failed.setAttribute("role", "alert");
      failed.textContent = "The server could not be reached. Press the button again: nothing is charged twice.";
      document.getElementById("problems").replaceChildren(failed);
    } finally {
      document.getElementById("result").removeAttribute("aria-busy");
      button.disabled = false;
      // It lost the focus when it was disabled.
      if (document.activeElement === document.body) button.focus();
    }
  });
}

// Submits a form once per page view: a double click on a form without a token would show the error of
// the second submission. Forms that a script sends prevent the default and are skipped.
let submitted = new WeakSet();
document.addEventListener("submit", (event) => {
  const form = event.target;
  if (event.defaultPrevented || form.getAttribute("method") !== "post") return;
  if (submitted.has(form)) event.preventDefault();
  submitted.add(form);
});
// The back button shows the page as it was left.
addEventListener("pageshow", () => { submitted = new WeakSet(); });

// Ctrl+K and / lead to the search, / only outside of fields.
document.addEventListener("keydown", (event) => {
  const isTyping = event.target.closest("input, select, textarea");
  const isSlash = event.key === "/" && !isTyping && !event.ctrlKey && !event.metaKey && !event.altKey;
  if (!isSlash && !(event.key.toLowerCase() === "k" && (event.ctrlKey || event.metaKey))) return;
  const menu = document.querySelector(".top .menu");
  if (menu?.checkVisibility()) menu.open = true;
  const fields = [...document.querySelectorAll(".search input")];
  const field = fields.find((one) => one.checkVisibility());
  if (!field) return;
  event.preventDefault();
  field.focus();
  field.select();
});

// A tick at an ability selects "only these".
document.addEventListener("change", (event) => {
  if (event.target.name !== "ability" || !event.target.checked) return;
  event.target.form.querySelector("[name=scope][value=some]").checked = true;
});

localize(document);
watchAll();
for (const form of document.querySelectorAll("form[data-follows]")) follow(form);
for (const form of document.querySelectorAll("form[data-run]")) run(form);

// A picture that is chosen, dropped or pasted is added at once.
function addPicture(pictures, files) {
  const input = pictures.querySelector("input[type=file]");
  if (!files.length) return;
  if (files !== input.files) input.files = files;
  pictures.querySelector("button").click();
}

document.addEventListener("change", ({ target }) => {
  const pictures = target.type === "file" && target.closest("[data-pictures]");
  if (pictures) addPicture(pictures, target.files);
});
document.addEventListener("dragover", (event) => {
  if (document.querySelector("[data-pictures]")) event.preventDefault();
});
for (const type of ["drop", "paste"]) {
  document.addEventListener(type, (event) => {
    const pictures = document.querySelector("[data-pictures]");
    // Some programs copy text with a picture of it.
    if (event.clipboardData?.types.includes("text/plain")) return;
    const files = (event.dataTransfer ?? event.clipboardData)?.files;
    if (!pictures || !files?.length) return;
    event.preventDefault();
    addPicture(pictures, files);
  });
}
