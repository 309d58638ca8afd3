// What a person does in the console, in a real browser: see run.sh.

import assert from "node:assert/strict";
import { existsSync, mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import puppeteer from "puppeteer-core";

const url = process.env.CONSOLE_URL;
const password = "a password of tests";
const folder = join(dirname(fileURLToPath(import.meta.url)), "shots");
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const patience = 60_000;
mkdirSync(folder, { recursive: true });

const names = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
const found = (process.env.PATH ?? "").split(":").flatMap((path) => names.map((name) => join(path, name)));
const executablePath = process.env.CHROMIUM ?? found.find((path) => existsSync(path));
const browser = await puppeteer.launch({ executablePath, args: ["--no-sandbox"] });

// What the browser refused to load or run, and what the script failed at.
const complaints = [];

async function open(javascript) {
  const context = await browser.createBrowserContext();
  const page = await context.newPage();
  page.setDefaultTimeout(patience);
  await page.setJavaScriptEnabled(javascript);
  page.on("console", (message) => {
    // A form that is refused on purpose is told as a failed resource, too.
    const refused = /status of (401|403|404|422)/.test(message.text());
    if (message.type() === "error" && !refused) complaints.push(`${page.url()}: ${message.text()}`);
  });
  page.on("pageerror", (error) => complaints.push(`${page.url()}: ${error.message}`));
  return page;
}

const text = (page, selector = "main") => page.$eval(selector, (element) => element.innerText);

// Asks again and again: the page's policy forbids what Puppeteer would wait by.
async function until(page, holds, ...given) {
  for (const end = Date.now() + patience; ;) {
    if (await page.evaluate(holds, ...given).catch(() => false)) return;
    assert.ok(Date.now() < end, `${page.url()}: ${holds} is never so: ${await text(page)}`);
    await new Promise((done) => setTimeout(done, 100));
  }
}

async function go(page, path) {
  const response = await page.goto(url + path, { waitUntil: "load" });
  return response.status();
}

async function submit(page, selector) {
  await Promise.all([page.waitForNavigation(), page.click(selector)]);
}

async function logIn(page, email) {
  await go(page, "/login");
  await page.type("[name=email]", email);
  await page.type("[name=password]", password);
  await submit(page, "form.login button");
  assert.equal(new URL(page.url()).pathname, "/");
}

// Generates one of each type, by its form, and answers where their receipts are.
async function generateAll(page, javascript) {
  const receipts = {};
  for (const [type, element] of [["text", "#result .prose"], ["image", "#result img"],
    ["video", "#result video"], ["audio", "#result audio"]]) {
    await go(page, `/playground/${type}`);
    if (type === "image") await page.select("[name='p.size']", "256x256");
    await page.type("[name=prompt]", `A prompt for ${type}, with <b>marks</b>`);
    if (javascript) {
      // The price and the code follow what is typed.
      await until(page, () => document.querySelector("#price").innerText.includes("available"));
      await until(page, () => document.querySelector("#code").innerText.includes("with <b>marks</b>"));
      await page.click("[data-run]:not(form)");
    } else {
      await submit(page, "[data-run]:not(form)");
      if (type === "video" || type === "audio") {
        // The page loads itself again until the job has ended.
        assert.match(await page.content(), /http-equiv="refresh"/);
        const receipt = await page.$eval("#result a[href^='/generations/']", (link) => link.getAttribute("href"));
        for (let left = 60; left > 0; left -= 1) {
          await go(page, receipt);
          if ((await text(page)).includes("This is what was charged")) break;
          await new Promise((done) => setTimeout(done, 1000));
        }
        receipts[type] = receipt;
        continue;
      }
    }
    await until(page, (wanted) => document.querySelector(wanted) !== null, element);
    await until(page, () => document.querySelector("#result .badge.good") !== null);
    receipts[type] = await page.$eval("#result a[href^='/generations/']", (link) => link.getAttribute("href"));
  }
  return receipts;
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

async function keys(page, javascript) {
  await go(page, "/keys/new");
  await page.type("[name=name]", "from the browser");
  await page.click("[value='generate:text']");
  await submit(page, "main form button.primary");
  const key = await page.$eval(".secret code", (code) => code.textContent);
  const call = () => fetch(`${url}/v1/generate/text`, {
    method: "POST",
    headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
    body: JSON.stringify({ prompt: "by the key" }),
  });
  assert.equal((await call()).status, 200);
  await go(page, "/keys");
  await submit(page, "tbody a");
  await page.click("details.confirm summary");
  await submit(page, ".confirm-panel button");
  assert.match(await text(page), /Revoked/);
  assert.equal((await call()).status, 401);
  if (javascript) assert.ok(await page.$eval("time", (time) => time.title));
}

async function history(page) {
  await go(page, "/generations");
  const all = (await page.$$("tbody tr")).length;
  await page.select("[name=type]", "image");
  await submit(page, ".filters button");
  assert.match(page.url(), /type=image/);
  const some = (await page.$$("tbody tr")).length;
  assert.ok(some > 0 && some < all, `${some} of ${all}`);
}

async function accessible(page, paths, label) {
  for (const path of paths) {
    for (const [scheme, width] of [["light", 1280], ["dark", 390], ["dark", 1280], ["light", 390]]) {
      await page.setViewport({ width, height: 900 });
      await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
      await go(page, path);
      const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      assert.ok(wide <= 0, `${path} is ${wide} px too wide at ${width}`);
      const name = `${label}${path.replace(/[^a-z0-9]+/gi, "-")}-${width}-${scheme}.png`;
      await page.screenshot({ path: join(folder, name), fullPage: true });
      // Injected by the debugger, which the page's policy does not bind.
      await page.evaluate(axe);
      const { violations } = await page.evaluate(() => globalThis.axe.run());
      const findings = violations.map((v) => `${v.id}: ${v.nodes.map((n) => n.html).join(" ")}`);
      assert.deepEqual(findings, [], `${path} at ${width}, ${scheme}`);
    }
  }
}

async function operator(page) {
  await logIn(page, "olga@example.com");
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
  return account;
}

try {
  for (let left = 120; ; left -= 1) {
    const up = await fetch(`${url}/health/live`).then((answer) => answer.ok, () => false);
    if (up) break;
    assert.ok(left > 0, "the server does not start");
    await new Promise((done) => setTimeout(done, 500));
  }
  for (const javascript of [true, false]) {
    const page = await open(javascript);
    await logIn(page, "ann@example.com");
    const receipts = await generateAll(page, javascript);
    for (const receipt of Object.values(receipts)) await checkReceipt(page, receipt);
    await keys(page, javascript);
    await history(page);
    if (javascript) {
      const paths = ["/", "/playground/text", "/playground/image", "/playground/video",
        "/playground/audio", "/generations", ...Object.values(receipts), "/usage", "/usage?by=model",
        "/ledger", "/keys", "/keys/new", "/templates", "/templates/new", "/webhooks", "/connect",
        "/settings", "/nowhere"];
      await accessible(page, paths, "account");
    }
    console.log(`with${javascript ? "" : "out"} JavaScript: done`);
  }
  const [page, hers] = [await open(true), await open(true)];
  await logIn(hers, "ann@example.com");
  assert.equal(await go(hers, "/operator"), 404);
  const account = await operator(page);
  assert.match(await (await hers.goto(`${url}/keys`)).text(), /suspended/);
  const paths = ["/operator", "/operator/accounts", account, "/operator/jobs", "/operator/spending"];
  await accessible(page, paths, "operator");
  await go(page, account);
  await submit(page, "form[action$='/resume'] button");
  assert.equal(await go(hers, "/keys"), 200);
  const stranger = await open(true);
  await accessible(stranger, ["/login"], "nobody");
  assert.deepEqual(complaints, []);
  console.log("operator: done");
} finally {
  await browser.close();
}
