// A headless Chromium over its debugging pipe, without a package.

import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const PLACES = [
  "/usr/lib/chromium/chromium",
  "/usr/bin/chromium",
  "/usr/bin/chromium-browser",
  "/usr/bin/google-chrome",
];

/** The program, or undefined: none is installed. `CHROMIUM` names another. */
export const program = [process.env.CHROMIUM, ...PLACES].find((path) => path && existsSync(path));

export class Browser {
  #next = 1;
  #waiting = new Map();
  #listeners = [];

  static async launch() {
    const browser = new Browser();
    browser.folder = mkdtempSync(join(tmpdir(), "llmrt-page-"));
    const flags = [
      "--headless=new",
      "--no-sandbox",
      "--disable-gpu",
      "--disable-dev-shm-usage",
      "--no-first-run",
      "--remote-debugging-pipe",
    ];
    const stdio = ["ignore", "ignore", "ignore", "pipe", "pipe"];
    browser.process = spawn(program, [...flags, `--user-data-dir=${browser.folder}`, "about:blank"], { stdio });
    browser.process.stdio[4].on("data", (bytes) => browser.#receive(bytes));
    browser.process.stdio[3].on("error", () => {});
    browser.process.on("exit", () => browser.#fail("Chromium has ended"));
    return browser;
  }

  send(method, params = {}, sessionId = undefined) {
    const id = this.#next++;
    this.process.stdio[3].write(`${JSON.stringify({ id, method, params, sessionId })}\0`);
    return new Promise((resolve, reject) => this.#waiting.set(id, { resolve, reject, method }));
  }

  /** A page with its problems: exceptions, console errors, refusals of the content security policy. */
  async page() {
    const { targetId } = await this.send("Target.createTarget", { url: "about:blank" });
    const { sessionId } = await this.send("Target.attachToTarget", { targetId, flatten: true });
    const page = new Page(this, sessionId);
    this.#listeners.push((message) => message.sessionId === sessionId && page.observe(message));
    for (const domain of ["Page", "Runtime", "Log"]) await page.send(`${domain}.enable`);
    return page;
  }

  async close() {
    const ended = new Promise((done) => this.process.once("exit", done));
    if (this.process.exitCode === null) {
      this.send("Browser.close").catch(() => {});
      await Promise.race([ended, pause(5000)]);
      this.process.kill("SIGKILL");
    }
    try {
      rmSync(this.folder, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });
    } catch {
      // Its other processes still write: the folder is temporary.
    }
  }

  #fail(problem) {
    this.#waiting.forEach(({ reject, method }) => reject(new Error(`${method}: ${problem}`)));
    this.#waiting.clear();
  }

  #buffer = Buffer.alloc(0);
  #receive(bytes) {
    this.#buffer = Buffer.concat([this.#buffer, bytes]);
    for (let end; (end = this.#buffer.indexOf(0)) >= 0; this.#buffer = this.#buffer.subarray(end + 1)) {
      const message = JSON.parse(this.#buffer.subarray(0, end));
      const waiting = this.#waiting.get(message.id);
      this.#waiting.delete(message.id);
      if (!waiting) this.#listeners.forEach((listener) => listener(message));
      else if (message.error) waiting.reject(new Error(`${waiting.method}: ${message.error.message}`));
      else waiting.resolve(message.result);
    }
  }
}

export class Page {
  problems = [];

  constructor(browser, sessionId) {
    Object.assign(this, { browser, sessionId });
  }

  send(method, params) {
    return this.browser.send(method, params, this.sessionId);
  }

  observe({ method, params }) {
    if (method === "Runtime.exceptionThrown")
      this.problems.push(params.exceptionDetails.exception?.description ?? params.exceptionDetails.text);
    if (method === "Page.javascriptDialogOpening") this.problems.push(`dialog: ${params.message}`);
    if (method === "Log.entryAdded" && params.entry.level === "error") this.problems.push(params.entry.text);
  }

  async open(url) {
    await this.send("Page.navigate", { url });
    await this.until("document.readyState === 'complete'");
  }

  async run(expression) {
    const { result, exceptionDetails } = await this.send("Runtime.evaluate", {
      expression,
      awaitPromise: true,
      returnByValue: true,
    });
    if (exceptionDetails)
      throw new Error(`${expression}: ${exceptionDetails.exception?.description ?? exceptionDetails.text}`);
    return result.value;
  }

  /** Waits until an expression is true. */
  async until(expression, ms = 10_000) {
    for (const end = Date.now() + ms; Date.now() < end; await pause(20)) {
      if (await this.run(expression).catch(() => false)) return;
    }
    throw new Error(
      `not within ${ms} ms: ${expression}\n${await this.run("document.body.innerText")}\n${this.problems.join("\n")}`,
    );
  }

  text(selector) {
    return this.run(`document.querySelector(${JSON.stringify(selector)})?.innerText ?? null`);
  }

  async type(text) {
    await this.send("Input.insertText", { text });
  }

  async press(key, modifiers = 0) {
    const codes = { Enter: 13, Escape: 27, Tab: 9, " ": 32, ArrowRight: 39 };
    const text = { Enter: "\r", " ": " " }[key];
    const event = { key, code: key === " " ? "Space" : key, windowsVirtualKeyCode: codes[key], modifiers };
    await this.send("Input.dispatchKeyEvent", { type: text ? "keyDown" : "rawKeyDown", text, ...event });
    await this.send("Input.dispatchKeyEvent", { type: "keyUp", ...event });
  }

  async view(width, height, scheme) {
    await this.send("Emulation.setDeviceMetricsOverride", { width, height, deviceScaleFactor: 1, mobile: false });
    await this.send("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value: scheme }] });
  }

  async screenshot() {
    const { data } = await this.send("Page.captureScreenshot", { format: "png" });
    return Buffer.from(data, "base64");
  }
}

const pause = (ms) => new Promise((done) => setTimeout(done, ms));
