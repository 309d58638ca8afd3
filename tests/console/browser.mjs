// A headless Chromium, and what tests do in it.

import assert from "node:assert/strict";
import { existsSync, mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import puppeteer from "puppeteer-core";

export const url = process.env.CONSOLE_URL;
const password = "a password of tests";
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const shots = process.env.SHOTS;
const patience = 60_000;

const names = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
const found = (process.env.PATH ?? "").split(":").flatMap((path) => names.map((name) => join(path, name)));
const executablePath = process.env.CHROMIUM ?? found.find((path) => existsSync(path));

// It opens nothing but our own pages, as root perhaps and where /dev/shm is small.
export const browser = await puppeteer.launch({
  executablePath, args: ["--no-sandbox", "--disable-dev-shm-usage"],
});

// What the browser refused to load or run, and what the script failed at.
export const complaints = [];

export async function open(javascript = true, reported = complaints) {
  const context = await browser.createBrowserContext();
  const page = await context.newPage();
  page.setDefaultTimeout(patience);
  await page.setJavaScriptEnabled(javascript);
  page.on("console", (message) => {
    // A page that is refused on purpose is also reported as a failed resource.
    const refused = /status of (401|403|404|422)/.test(message.text());
    if (message.type() === "error" && !refused) reported.push(`${page.url()}: ${message.text()}`);
  });
  page.on("pageerror", (error) => reported.push(`${page.url()}: ${error.message}`));
  const audits = await page.createCDPSession();
  audits.on("Audits.issueAdded", ({ issue }) => {
    if (issue.code !== "ContentSecurityPolicyIssue") return;
    reported.push(`${page.url()}: policy: ${JSON.stringify(issue.details)}`);
  });
  await audits.send("Audits.enable");
  return page;
}

export const text = (page, selector = "main") => page.$eval(selector, (element) => element.innerText);

// Asks again and again: the page's policy forbids what Puppeteer would wait by.
export async function until(page, holds, ...given) {
  for (const end = Date.now() + patience; ;) {
    if (await page.evaluate(holds, ...given).catch(() => false)) return;
    if (Date.now() > end) throw new Error(`${page.url()}: ${holds} is never so: ${await text(page)}`);
    await new Promise((done) => setTimeout(done, 50));
  }
}

// Opens a page, and answers its status.
export async function go(page, path) {
  const response = await page.goto(url + path, { waitUntil: "load" });
  return response.status();
}

// Presses a button that leads to another page, and answers its status.
export async function submit(page, selector) {
  const [response] = await Promise.all([page.waitForNavigation(), page.click(selector)]);
  return response.status();
}

export async function logIn(page, name, typed = password) {
  await go(page, "/login");
  await page.type("[name=email]", `${name}@example.com`);
  await page.type("[name=password]", typed);
  await submit(page, "form.login button");
}

// Opens each page, and looks at it in all four views: width, what axe finds, a screenshot.
export async function accessible(page, paths, label) {
  if (shots) mkdirSync(shots, { recursive: true });
  for (const path of paths) {
    await go(page, path);
    // Injected by the debugger, which the page's policy does not bind.
    await page.evaluate(axe);
    // The widest day and hour, so that what fits today fits on any day.
    await page.$$eval("time", (all) => all.forEach((one) => {
      one.textContent = one.textContent
        .replace(/^[A-Z][a-z]+ \d+/, "Nov 30").replace(/\d+:\d\d(:\d\d)?(\s)[AP]M/, "10:00$1$2AM");
    }));
    const view = async (scheme, width, state = "") => {
      await page.setViewport({ width, height: 900 });
      await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
      const about = `${path} at ${width}, ${scheme} ${state}`;
      const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      assert.ok(wide <= 0, `${about} is ${wide} px too wide`);
      // What is wider than a phone can be scrolled there, but not a bill.
      const cut = await page.$$eval(width > 390 ? ".table" : ".table:has(.sum), .cards td:not(.cut)", (all) =>
        all.filter((one) => one.scrollWidth > one.clientWidth).map((one) => one.innerText));
      assert.deepEqual(cut, [], about);
      const { violations } = await page.evaluate(() => globalThis.axe.run({ resultTypes: ["violations"] }));
      const findings = violations.map((v) => `${v.id}: ${v.nodes.map((n) => n.html).join(" ")}`);
      assert.deepEqual(findings, [], about);
      if (!shots) return;
      const name = `${label}${path.replace(/[^a-z0-9]+/gi, "-")}-${width}-${scheme}${state}.png`;
      await page.screenshot({ path: join(shots, name), fullPage: true });
    };
    for (const scheme of ["light", "dark"]) {
      for (const width of [1280, 390]) await view(scheme, width);
    }
    // Menus and questions as well.
    await page.$$eval("details", (all) => all.forEach((one) => { one.open = true; }));
    await view("light", 390, "-open");
  }
}
