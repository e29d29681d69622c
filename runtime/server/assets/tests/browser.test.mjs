// Drives the page in headless Chromium against the mock server.
//
//   apt-get install chromium
//   node --test runtime/server/assets/tests/*.test.mjs
//
// Skipped where no Chromium is installed; CHROMIUM=path names one. SCREENSHOTS=folder writes pictures there: both themes, a
// narrow screen, a story. docs/images/serve-page-narrow.png is page-narrow.png of this test, docs/images/serve-page.png is
// server.png of server.test.mjs, whose numbers are a real engine's.

import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, beforeEach, test } from "node:test";
import { Browser, program } from "./chromium.mjs";
import { EVIL_NAME, start } from "./mock.mjs";

const options = { skip: program ? false : "no Chromium is installed", timeout: 60_000 };
let browser, mock, page;

before(async () => {
  if (!program) return;
  browser = await Browser.launch();
  page = await browser.page();
});

after(async () => {
  await browser?.close();
  await mock?.close();
});

/** A page without stored values, on a server of its own. */
beforeEach(async () => {
  if (!program) return;
  await mock?.close();
  mock = await start();
  await page.view(1200, 800, "light");
  await page.open(mock.url);
  await ready();
  page.problems.length = 0;
});

const ready = () =>
  page.until("document.querySelector('#model option[value]') && document.activeElement.id === 'input'");
const idle = () =>
  page.until(
    "document.querySelector('#transcript').ariaBusy === 'false' && /complete|failed/.test(document.querySelector('#status').innerText)",
  );
const answers = () => page.run("[...document.querySelectorAll('.assistant .body')].map((body) => body.innerText)");
const click = (selector) => page.run(`document.querySelector(${JSON.stringify(selector)}).click()`);
const button = (label) =>
  page.run(
    `[...document.querySelectorAll('button')].filter((b) => b.innerText === ${JSON.stringify(label)} && b.offsetParent).at(-1).click()`,
  );
const clean = () => assert.deepEqual(page.problems, []);
const sent = () => mock.state.requests.filter(({ path }) => path.startsWith("/v1")).at(-1).body;

/** The server sees the end of a connection somewhat later than the page. */
async function aborted() {
  for (let i = 0; i < 100 && mock.state.aborted === 0; i++) await new Promise((done) => setTimeout(done, 20));
  assert.equal(mock.state.aborted, 1);
}

async function send(text) {
  await page.run("document.querySelector('#input').focus()");
  await page.type(text);
  await page.press("Enter");
}

async function picture(name) {
  const folder = process.env.SCREENSHOTS;
  if (!folder) return;
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, name), await page.screenshot());
}

test("an answer streams into markdown, with counts, and is there after a reload", options, async () => {
  await send("What is a KV cache?");
  await idle();
  assert.equal(await page.text(".assistant strong"), "KV cache");
  assert.match(await page.text(".code pre"), /^def slot/);
  assert.equal(await page.run("document.querySelectorAll('.body table td').length"), 4);
  assert.match(
    await page.text(".assistant .note"),
    /^\d+ tokens · [\d.]+ tok\/s · first after [\d.]+ s · prompt 23, 16 cached$/,
  );
  assert.deepEqual(sent().stream_options, { include_usage: true });
  assert.equal(sent().max_tokens, 512);
  const before = await answers();
  await page.open(mock.url);
  await ready();
  assert.deepEqual(await answers(), before);
  clean();
});

test("Escape stops, and the server sees it", options, async () => {
  await send("slow");
  await page.until("document.querySelector('.assistant .body')?.innerText.length > 20");
  assert.equal(
    await page.run("document.querySelector('#send').hidden && !document.querySelector('#stop').hidden"),
    true,
  );
  await page.press("Escape");
  await idle();
  assert.match(await page.text(".assistant .note"), /^stopped · about \d+ tokens/);
  await aborted();
  assert.equal(await page.run("document.activeElement.id"), "input");
  clean();
});

test("a switch of the mode stops the answer and keeps it", options, async () => {
  await send("slow");
  await page.until("document.querySelector('.assistant .body')?.innerText.length > 20");
  await click("input[value=complete]");
  await idle();
  await aborted();
  await page.until("document.querySelector('.hint')");
  await click("input[value=chat]");
  assert.match(await page.text(".assistant .body"), /^word word/);
  assert.match(await page.run("localStorage.getItem('llmrt.turns.chat')"), /stopped/);
  assert.equal(await page.run("localStorage.getItem('llmrt.turns.complete')"), null);
  clean();
});

test("regenerate and edit replace turns", options, async () => {
  await send("think");
  await idle();
  assert.equal(await page.text("summary"), "Reasoning");
  assert.deepEqual(await answers(), ["42"]);
  await page.run("document.querySelector('summary').click()");
  assert.equal(await page.text("details div"), "first I count, then");
  await button("Regenerate");
  await idle();
  assert.equal((await answers()).length, 1);
  assert.equal(sent().messages.length, 1);
  await button("Edit");
  await page.press("Escape");
  assert.equal(await page.run("document.querySelector('#input').value"), "");
  await button("Edit");
  await page.run("document.querySelector('#input').select()");
  await send("hello");
  await idle();
  assert.deepEqual(sent().messages, [{ role: "user", content: "hello" }]);
  assert.equal((await answers()).length, 1);
  clean();
});

for (const [text, message] of [
  ["error", "503: the queue is <b>full</b> Try again in 2 s."],
  ["disconnect", "The connection was lost before the answer was complete."],
  ["midway", "the device failed"],
]) {
  test(`${text}: the problem is shown, the next message works`, options, async () => {
    await send(text);
    await idle();
    assert.equal(await page.text(".problem[role=alert]"), message);
    await send("hello");
    await idle();
    assert.match((await answers()).at(-1), /^A KV cache/);
  });
}

test("what a model writes is text", options, async () => {
  await send("hostile");
  await idle();
  assert.equal(await page.run("document.querySelectorAll('#transcript :is(script, img, b)').length"), 0);
  assert.deepEqual(await page.run("[...document.querySelectorAll('#transcript a')].map((a) => a.href)"), [
    "https://x.org/",
  ]);
  assert.match(await page.text(".assistant .body"), /<script>alert\(1\)<\/script>/);
  const option = `document.querySelector('#model option:last-child')`;
  assert.equal(await page.run(`${option}.textContent`), `${EVIL_NAME} (not loaded)`);
  clean();
});

test("a model without a template continues a story", options, async () => {
  const choose = (name) =>
    page.run(
      `{ const s = document.querySelector('#model'); s.value = '${name}'; s.dispatchEvent(new Event('change')) }`,
    );
  await choose("stories");
  await page.until("document.querySelector('input[value=complete]').checked");
  await send("Once upon a time");
  await idle();
  await send("Then");
  await idle();
  assert.equal(sent().prompt, "Once upon a time a brave dragon lived in a red house. Then");
  assert.equal(sent().model, "stories");
  assert.match(await page.text("#transcript"), /^Once upon a time a brave dragon lived in a red house. Then a brave/);
  await picture("story.png");
  await choose("qwen3-0.6b-q4_0");
  await page.until("document.querySelector('input[value=chat]').checked && document.querySelector('.hint')");
  clean();
});

test("settings are sent and kept; the key is kept for the tab only", options, async () => {
  mock.state.key = "secret";
  await send("hello");
  await idle();
  assert.match(await page.text(".problem[role=alert]"), /^401: the API key/);
  assert.equal(await page.run("document.activeElement.type"), "password");
  await page.type("secret");
  await page.press("Tab");
  await page.until("/accepts the key/.test(document.querySelector('#status').innerText)");
  await page.run("document.querySelector('#fields input[type=number]').focus()");
  await page.type("0.5");
  await page.run("document.querySelector('#fields textarea').focus()");
  await page.type("Be brief.");
  await page.press("Escape");
  assert.equal(await page.run("document.querySelector('#settings').hidden"), true);
  await button("Regenerate");
  await idle();
  assert.equal(sent().temperature, 0.5);
  assert.deepEqual(
    sent().messages.map((m) => m.role),
    ["system", "user"],
  );
  assert.equal(await page.run("JSON.stringify({ ...localStorage }).includes('secret')"), false);
  await page.open(mock.url);
  await ready();
  assert.equal(
    await page.run("[...document.querySelectorAll('#fields input')].map((input) => input.value).join()"),
    "0.5,,,,,512,,secret",
  );
  await click("#clear");
  assert.equal(await page.run("localStorage.getItem('llmrt.turns.chat')"), "[]");
  await page.run("sessionStorage.clear()");
  await page.open(mock.url);
  await page.until("document.activeElement.type === 'password'");
  assert.match(await page.text("#status"), /^401/);
});

test("the engine is polled while its panel is open", options, async () => {
  assert.equal(mock.state.nMetrics, 0);
  await send("slow");
  await click("[data-panel=engine]");
  await page.until(
    "/Running\\s+1/.test(document.querySelector('#gauges').innerText) && /Tokens\\/s\\s+\\d/.test(document.querySelector('#gauges').innerText)",
  );
  assert.match(await page.text("#gauges"), /KV cache\s+37.0 %/);
  assert.match(
    await page.text("#placement"),
    /cuda:0\s+812\s+50.0 MiB[^]*get_rows\s+cpu\s+TYPE: q4_k\s+2\s+<b>token_embd<\/b>[^]*fallback_nodes\s+cpu\s+2/,
  );
  await click("[data-panel=engine]");
  await page.press("Escape");
  const n = mock.state.nMetrics;
  await new Promise((done) => setTimeout(done, 1500));
  assert.equal(mock.state.nMetrics, n);
  clean();
});

test("a server that stops is reported", options, async () => {
  await mock.close();
  await send("hello");
  await idle();
  assert.match(await page.text(".problem[role=alert]"), /^The server does not answer/);
});

test("the keyboard reaches every control in the order of the page", options, async () => {
  const order = ["send", "", "skip", "model", "chat", "clear", "theme", "settings", "engine", "transcript", "input"];
  for (const expected of order) {
    await page.press("Tab");
    const reached = "{ const e = document.activeElement; e.id || e.dataset.panel || e.value || e.className }";
    assert.equal(await page.run(reached), expected);
  }
  const unnamed = await page.run(
    "[...document.querySelectorAll('input, textarea, select')].filter((e) => !e.labels.length).length",
  );
  assert.equal(unnamed, 0);
  clean();
});

test("both themes, and one column on a narrow screen", options, async () => {
  const back = () => page.run("getComputedStyle(document.body).backgroundColor");
  await click("[data-panel=engine]");
  mock.state.delay = process.env.SCREENSHOTS ? 100 : 5;
  await send("What is a KV cache?");
  await idle();
  await page.until("/Tokens\\/s\\s+\\d/.test(document.querySelector('#gauges').innerText)");
  assert.equal(await back(), "rgb(255, 255, 255)");
  await picture("page-light.png");
  await page.view(1200, 800, "dark");
  assert.equal(await back(), "rgb(21, 23, 28)");
  await picture("page-dark.png");
  await click("#theme");
  await click("#theme");
  assert.equal(await back(), "rgb(255, 255, 255)");
  await click("#theme");
  await page.view(360, 740, "dark");
  assert.equal(await page.run("document.documentElement.scrollWidth"), 360);
  const isAbove =
    "document.querySelector('#engine').getBoundingClientRect().bottom <= document.querySelector('main').getBoundingClientRect().top";
  assert.equal(await page.run(isAbove), true);
  await picture("page-narrow-engine.png");
  await click("[data-panel=engine]");
  await picture("page-narrow.png");
  clean();
});
