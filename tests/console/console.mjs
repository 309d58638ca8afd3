// What people do in the console, in a real browser: see run.sh.

import assert from "node:assert/strict";
import { accessible, browser, complaints, go, logIn, open, submit, text, until, url } from "./browser.mjs";

const began = Date.now();
const done = (what) => console.log(`console: ${what}, after ${Math.round((Date.now() - began) / 1000)} s`);

const TYPES = [["text", "#result .prose"], ["image", "#result img"], ["video", "#result video"],
  ["audio", "#result audio"]];
const receiptLink = (page) =>
  page.$eval("#result a[href^='/generations/']", (link) => link.getAttribute("href"));

// Replaces the example that the form begins with.
async function writePrompt(page, words) {
  await page.$eval("[name=prompt]", (area) => { area.value = ""; });
  await page.type("[name=prompt]", words);
}

// Generates one of each type, by its form, and answers where their receipts are.
async function generateAll(page, javascript, prompt) {
  const receipts = {};
  for (const [type, element] of TYPES) {
    await go(page, `/playground/${type}`);
    if (type === "image") await page.select("[name='p.size']", "256x256");
    // Long enough for its progress to be seen.
    const slow = type === "video" ? "[[slow:2]] " : "";
    await writePrompt(page, slow + prompt);
    if (javascript) {
      // The price and the code follow what is typed.
      await until(page, () => document.querySelector("#price").innerText.includes("available"));
      const quoted = JSON.stringify(prompt).slice(1, -1);
      await until(page, (words) => document.querySelector("#code").innerText.includes(words), quoted);
      await page.evaluate(() => { globalThis.sameDocument = true; });
      if (type === "text") {
        await page.focus("[name=prompt]");
        await page.keyboard.down("Control");
        await page.keyboard.press("Enter");
        await page.keyboard.up("Control");
      } else await page.click("[data-run]:not(form)");
      if (type === "video") await until(page, () => document.querySelector("#result progress") !== null);
    } else {
      await submit(page, "[data-run]:not(form)");
      // The page loads itself again until the job has ended.
      if (type === "video") assert.match(await page.content(), /http-equiv="refresh"/);
    }
    await until(page, (wanted) => document.querySelector(wanted) !== null, element);
    await until(page, () => document.querySelector("#result .badge.good") !== null);
    if (javascript) {
      assert.ok(await page.evaluate(() => globalThis.sameDocument), `${type} reloaded the page`);
      // The keyboard leaves the focus where one types.
      const focused = type === "text" ? "[name=prompt]" : "[data-run]";
      await until(page, (wanted) => document.activeElement.matches(wanted), focused);
      await trueBalances(page);
    }
    receipts[type] = await receiptLink(page);
  }
  return receipts;
}

// Every balance of the page is what a fresh page shows, at both widths.
async function trueBalances(page) {
  for (const width of [1280, 390]) {
    await page.setViewport({ width, height: 900 });
    await until(page, async () => {
      const fresh = new DOMParser().parseFromString(await (await fetch("/ledger")).text(), "text/html");
      const wanted = fresh.querySelector("[data-balance] data").value;
      const shown = [...document.querySelectorAll("[data-balance] data")].map((cell) => cell.value);
      return shown.length > 1 && shown.every((value) => value === wanted);
    });
  }
  await page.setViewport({ width: 1280, height: 900 });
}

// A refused run, and another run, leave a running job in view until it has ended.
async function runningJob(page) {
  await go(page, "/playground/video");
  await writePrompt(page, "[[slow:20]] the first");
  await page.click("[data-run]:not(form)");
  await until(page, () => document.querySelector("#result progress") !== null);
  const receipt = await receiptLink(page);
  await trueBalances(page);
  const write = (words) => page.$eval("[name=prompt]", (area, value) => { area.value = value; }, words);
  await write(" ");
  await page.click("[data-run]:not(form)");
  await until(page, () => document.querySelector("#problems").innerText !== "" || document.querySelector(".error") !== null);
  await until(page, () => !document.querySelector("[data-run]:not(form)").disabled);
  assert.equal(await receiptLink(page), receipt);
  await write("the second");
  await page.click("[data-run]:not(form)");
  await until(page, (first) => document.querySelector(`#running a[href="${first}"]`) !== null, receipt);
  assert.notEqual(await receiptLink(page), receipt);
  await until(page, (first) => document.querySelector(`#running a[href="${first}"]`) === null, receipt);
  await trueBalances(page);
  done("a job that runs");
}

// The lines of the bill, added up here, are what was charged.
async function checkReceipt(page, path) {
  await go(page, path);
  const shown = await text(page);
  assert.match(shown, /This is what was charged/);
  const bill = await page.$$eval("table.sum tbody tr", (rows) =>
    rows.map((row) => [...row.querySelectorAll("data")].map((cell) => cell.value)));
  const units = (number) => {
    const [whole, fraction = ""] = number.split(".");
    return BigInt(whole + fraction.padEnd(12, "0"));
  };
  const lines = bill.filter((cells) => cells.length === 3).map((cells) => units(cells[2]));
  const sum = lines.reduce((all, line) => all + line, 0n);
  const total = units(bill.at(-1)[0]);
  const millionth = 1_000_000n;
  assert.equal(((sum + millionth - 1n) / millionth) * millionth, total, path);
  const charged = await page.$eval(".notice.good data", (cell) => cell.value);
  assert.equal(units(charged), total, path);
}

// A picture is added, edited, and the result becomes the first frame of a video.
async function pictures(page, javascript) {
  await go(page, "/playground/image");
  await page.select("[name='p.size']", "256x256");
  const file = await page.$("[name=picture]");
  const added = page.waitForNavigation();
  await file.uploadFile(process.env.CONSOLE_PICTURE);
  if (!javascript) await page.click("#pictures button");
  await added;
  const input = await page.$eval("[name=input]", (box) => box.value);
  assert.match(input, /^source upl_/);
  const generate = async (element) => {
    await writePrompt(page, "with a boat");
    if (javascript) await page.click("[data-run]:not(form)");
    else await submit(page, "[data-run]:not(form)");
    await until(page, (wanted) => document.querySelector(wanted) !== null, element);
    await until(page, () => document.querySelector("#result .badge.good") !== null);
    return receiptLink(page);
  };
  const edited = await generate("#result img");
  const animate = await page.$eval("#result a[href^='/playground/video?input=first_frame']", (link) => link.getAttribute("href"));
  await go(page, animate);
  const animated = await generate("#result video");
  for (const receipt of [edited, animated]) await checkReceipt(page, receipt);
  assert.match(await text(page), /first_frame/);
  return { edited, animated };
}

// A key is made, used by a program, revoked, and refused.
async function keys(page, javascript) {
  await go(page, "/keys/new");
  await page.type("[name=name]", "from the browser");
  if (!javascript) await page.click("[name=scope][value=some]");
  await page.click("[value='generate:text']");
  // A double click is one key, shown once, also after a reload.
  await Promise.all([page.waitForNavigation(), page.click("main form button.primary", { count: 2 })]);
  await page.waitForSelector(".secret code");
  const key = await page.$eval(".secret code", (code) => code.textContent);
  await page.reload();
  assert.equal(await page.$(".secret"), null);
  await go(page, "/keys");
  assert.equal((await page.$$("tbody tr")).length, 1, await text(page));
  const call = () => fetch(`${url}/v1/generate/text`, {
    method: "POST",
    headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
    body: JSON.stringify({ prompt: "by the key" }),
  });
  assert.equal((await call()).status, 200);
  await go(page, "/keys");
  await submit(page, "tbody a");
  await page.click("details.confirm summary");
  if (javascript) {
    await page.focus(".confirm-panel button");
    await page.keyboard.press("Escape");
    assert.equal(await page.evaluate(() => document.activeElement.localName), "summary");
    await page.keyboard.press("Enter");
  }
  await submit(page, ".confirm-panel button");
  assert.match(await text(page), /Revoked/);
  assert.equal((await call()).status, 401);
  if (javascript) assert.ok(await page.$eval("time", (time) => time.title));
}

// Ctrl+K leads to the search, and that to a receipt.
async function search(page, receipt) {
  await go(page, "/keys");
  await until(page, () => document.documentElement.classList.contains("scripted"));
  await page.keyboard.down("Control");
  await page.keyboard.press("k");
  await page.keyboard.up("Control");
  await page.keyboard.type(receipt.split("/").at(-1));
  await Promise.all([page.waitForNavigation(), page.keyboard.press("Enter")]);
  assert.equal(new URL(page.url()).pathname, receipt);
}

async function history(page) {
  await go(page, "/generations");
  const all = (await page.$$("tbody tr")).length;
  await page.select("[name=type]", "image");
  await submit(page, ".filters button");
  assert.match(page.url(), /type=image/);
  const some = (await page.$$("tbody tr")).length;
  assert.ok(some > 0 && some < all, `${some} of ${all}`);
  assert.equal((await page.$$("tbody td.cut a")).length, some);
}

// Compares models, and runs a prompt on the same one twice.
async function sideBySide(page, javascript) {
  await go(page, "/models?type=image");
  await page.click("[name=compare]");
  await submit(page, "form.stack button");
  assert.match(await text(page), /Limit: max n/);
  await submit(page, "a[href^='/playground/image?model=']");
  await submit(page, ".page-head .button");
  await page.select("#models label:nth-child(2) select", "sandbox/sandbox-image-1");
  await page.select("[name='p.size']", "256x256");
  await writePrompt(page, "A lighthouse");
  if (javascript) {
    await until(page, () => document.querySelectorAll("#price strong").length === 2);
    await page.click("[data-run]:not(form)");
  } else await submit(page, "[data-run]:not(form)");
  await until(page, () => document.querySelectorAll(".runs .badge.good").length === 2);
  if (javascript) await trueBalances(page);
  const runs = await page.$$eval("[id^=run-]", (all) => all.map((one) => `generation=${one.id.slice(4)}`));
  assert.equal(new Set(runs).size, 2);
  return `/playground/image/compare?${runs.join("&")}`;
}

// A day of a person who uses the console; answers where the receipts are.
async function everyday(page, name, javascript) {
  await logIn(page, name, "a wrong password");
  assert.match(await text(page), /password/i);
  assert.equal(await page.evaluate(() => document.activeElement.name), "password");
  await logIn(page, name);
  assert.equal(new URL(page.url()).pathname, "/");
  const receipts = await generateAll(page, javascript, "A lighthouse at dusk, with \"quotes\" & <b>marks</b>");
  for (const receipt of Object.values(receipts)) await checkReceipt(page, receipt);
  Object.assign(receipts, await pictures(page, javascript));
  await keys(page, javascript);
  if (javascript) {
    await runningJob(page);
    await search(page, receipts.text);
  }
  await history(page);
  receipts.sideBySide = await sideBySide(page, javascript);
  done(`a person with${javascript ? "" : "out"} JavaScript`);
  return receipts;
}

// What somebody else wrote is text on every page, and runs nothing.
async function hostile(page) {
  const attack = "</textarea></title><script>globalThis.ran=1</script><img src=x onerror=\"globalThis.ran=1\">";
  await logIn(page, "bob");
  const receipts = await generateAll(page, true, attack);
  const make = async (path, fields) => {
    await go(page, path);
    for (const [name, value] of Object.entries(fields)) await page.type(`[name='${name}']`, value);
    const status = await submit(page, "main form button.primary");
    assert.equal(status, 200, `${path}: ${await text(page)}`);
  };
  await make("/keys/new", { name: attack });
  await make("/templates/new", { name: attack, prompt: `${attack} {{ place }}` });
  const template = new URL(page.url()).pathname;
  // Slashes separate attributes as well; blanks are no part of a URL.
  await make("/webhooks", { url: `http://127.0.0.1:9/?${attack.replaceAll(" ", "/")}` });
  const at = async (path) => {
    await go(page, path);
    return page.$eval("tbody a", (link) => link.getAttribute("href"));
  };
  const paths = { key: await at("/keys"), template, webhook: await at("/webhooks"), ...receipts };
  const query = encodeURIComponent(`">${attack}`);
  for (const path of ["/", "/generations", "/usage?by=api_key", "/ledger", "/keys", "/templates",
    "/webhooks", "/settings", "/connect", ...Object.values(paths),
    `/playground/text?generation=${receipts.text.split("/").at(-1)}`,
    `/generations?model=${query}&from=${query}&cursor=${query}`, `/usage?from=${query}`,
    `/ledger?kind=${query}`, `/login?next=/${query}`, `/${query}`]) {
    await go(page, path);
    await until(page, () => document.documentElement.classList.contains("scripted"));
    const came = await page.evaluate(() => globalThis.ran ?? document.querySelector("img[src=x]")?.outerHTML);
    assert.equal(came, undefined, path);
  }
  await go(page, paths.key);
  assert.equal(await text(page, "h1"), attack);
  await go(page, paths.text);
  assert.ok((await text(page)).split("<script>globalThis.ran=1").length > 2, "in the prompt and the result");
  done("hostile content");
  return Object.values(paths);
}

async function operator(page, hers) {
  assert.equal(await go(hers, "/operator"), 404);
  await logIn(page, "olga");
  await go(page, "/operator/accounts?email=ann@example.com");
  await submit(page, "tbody a");
  const account = new URL(page.url()).pathname;
  await page.type("[name=amount]", "12.5");
  await page.type("[name=reference]", "invoice 17");
  await submit(page, "form.card button.primary");
  assert.match(await text(page), /Done: grant of 12.5 credits/);
  await page.type("[name=reason]", "to try it out");
  await submit(page, "button.danger");
  assert.match(await text(page), /Suspended[\s\S]*to try it out/);
  assert.equal(await go(hers, "/keys"), 403);
  assert.match(await text(hers), /suspended/);
  await submit(page, "form[action$='/resume'] button");
  assert.equal(await go(hers, "/keys"), 200);
  // A double click on any form is one submission.
  await go(page, "/operator/accounts/new");
  const fill = () => page.$$eval("[name=email], [name=password]", (fields) => {
    for (const field of fields) field.value = "twice@example.com";
  });
  await fill();
  await Promise.all([page.waitForNavigation(), page.click("main form button.primary", { count: 2 })]);
  assert.equal(await text(page, "h1"), "twice");
  // The form can be submitted again after the back button.
  await page.goBack();
  await fill();
  assert.equal(await submit(page, "main form button.primary"), 422);
  await go(page, "/operator");
  await until(page, () => document.querySelector("main").innerText.includes("0 differences"));
  await go(hers, "/keys/new");
  await hers.type("[name=name]", "backend");
  await submit(hers, "form.card button.primary");
  // What the customer sees, without what changes it, but with what operators may change.
  await go(page, account);
  await submit(page, "form[action$='/view'] button");
  assert.match(await text(page), /You are viewing account/);
  await go(page, "/gallery");
  await go(page, "/keys");
  await submit(page, "tbody a");
  const key = new URL(page.url()).pathname;
  await page.$eval("form[action*='/operator/'] [name=name]", (field) => { field.value = "renamed"; });
  await submit(page, "form[action*='/operator/'] button.primary");
  assert.equal(await text(page, "h1"), "renamed");
  await accessible(page, ["/", key, "/generations", "/gallery"], "viewing");
  await go(page, "/");
  await submit(page, "form[action='/operator/view/end'] button");
  assert.doesNotMatch(await text(page), /You are viewing account/);
  done("an operator");
  return account;
}

// The browser reports requests that the page's policy forbids.
async function policyIsEnforced() {
  const reported = [];
  const page = await open(true, reported);
  await go(page, "/login");
  await page.evaluate(() => {
    const script = document.createElement("script");
    script.textContent = "globalThis.ran = 1";
    document.body.append(script);
    document.body.setAttribute("style", "color: red");
  });
  assert.equal(await page.evaluate(() => globalThis.ran), undefined);
  for (const end = Date.now() + 10_000; !reported.some((one) => one.includes("policy: ")); ) {
    assert.ok(Date.now() < end, "nothing was reported");
    await new Promise((next) => setTimeout(next, 50));
  }
}

try {
  const [hers, scriptless, bobs, olgas, stranger] = await Promise.all(
    [open(), open(false), open(), open(), open()]);
  // Each is an account of its own.
  const [receipts, , his] = await Promise.all([
    everyday(hers, "ann", true), everyday(scriptless, "carl", false), hostile(bobs), policyIsEnforced(),
  ]);
  for (const path of his) assert.equal(await go(hers, path), 404, path);
  const account = await operator(olgas, hers);
  await Promise.all([
    accessible(hers, ["/", "/playground/text", "/playground/image", "/playground/video",
      "/playground/audio", "/generations", "/generations?type=video&status=failed", "/gallery",
      ...Object.values(receipts), "/usage", "/usage?by=model", "/ledger", "/keys", "/keys/new",
      "/templates", "/templates/new", "/webhooks", "/search?q=nothing", "/connect", "/settings", "/nowhere", "/models",
      "/models?compare=sandbox/sandbox-text-1&compare=sandbox/sandbox-image-1",
      "/playground/text/compare"], "account"),
    accessible(olgas, ["/operator", "/operator/accounts", "/operator/accounts/new", account, "/operator/jobs",
      "/operator/providers", "/operator/spending", "/generations"], "operator"),
    accessible(bobs, ["/keys", "/webhooks", ...his], "hostile"),
    accessible(stranger, ["/login"], "anonymous"),
  ]);
  done("axe finds nothing");
  assert.deepEqual(complaints, []);
} finally {
  await browser.close();
}
