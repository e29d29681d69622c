// Drives the page of a running server, whose first model is the embedded story teller:
//
//   llmrt serve --port 8080
//   SERVER=http://127.0.0.1:8080/ node --test runtime/server/assets/tests/server.test.mjs
//
// Skipped without SERVER, or where no Chromium is installed. SCREENSHOTS=folder writes a picture there.

import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { Browser, program } from "./chromium.mjs";

const server = process.env.SERVER;
const options = { skip: server && program ? false : "no SERVER, or no Chromium", timeout: 120_000 };
const ended = "/complete|failed/.test(document.querySelector('#status').innerText)";

test("a browser streams a story and continues one past the context", options, async () => {
  const browser = await Browser.launch();
  try {
    const page = await browser.page();
    await page.view(1200, 800, "dark");
    await page.open(server);
    await page.until("document.querySelector('#model option[value]') && document.activeElement.id === 'input'");
    const send = async (text, until) => {
      await page.type(text);
      await page.press("Enter");
      await page.until("document.querySelector('#send').hidden");
      await page.until(until, 60_000);
      assert.equal(await page.text(".problem[role=alert]"), null);
    };
    await page.run("document.querySelector('[data-panel=engine]').click()");

    await send("a brave dragon", ended);
    assert.match(await page.text(".assistant .body"), /^Once upon a time, there was a brave dragon/);
    assert.match(await page.text(".assistant .note"), /^\d+ tokens · [\d.]+ tok\/s/);

    await send("a clever fox", ended);
    await page.until("/Tokens\\/s\\s+\\d/.test(document.querySelector('#gauges').innerText)");
    if (process.env.SCREENSHOTS) {
      mkdirSync(process.env.SCREENSHOTS, { recursive: true });
      writeFileSync(join(process.env.SCREENSHOTS, "server.png"), await page.screenshot());
    }

    await page.run("document.querySelector('input[value=complete]').click(); document.querySelector('#input').focus()");
    await send("One day, a girl found a red ball.", ended);
    for (let i = 0; i < 3; i++) await send("She ran to the park. ".repeat(10), ended);
    assert.match(await page.text(".note"), /without the oldest part: the context is full/);

    await page.until("/\\d/.test(document.querySelector('#gauges').innerText)");
    assert.equal(await page.text("#engine-problem"), "");
    assert.deepEqual(
      page.problems.filter((text) => !/status of 400/.test(text)),
      [],
    );
  } finally {
    await browser.close();
  }
});
