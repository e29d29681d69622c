// node --test runtime/server/assets/tests/*.test.mjs
import assert from "node:assert/strict";
import { test } from "node:test";
import { Conversation, delta, shortened, statistics } from "../conversation.js";
import { samplingFields } from "../settings.js";

const settings = { system: "", sampling: {} };
const user = (text) => ({ role: "user", text });
const answer = (text) => ({ role: "assistant", text });

function messages(turns, more = {}) {
  const [path, body] = new Conversation("chat", turns).request("m", { ...settings, ...more });
  assert.equal(path, "v1/chat/completions");
  return body.messages.map(({ role, content }) => `${role}: ${content}`);
}

test("a chat is sent as messages", () =>
  assert.deepEqual(messages([user("a"), answer("b"), user("c")], { system: "s" }), [
    "system: s",
    "user: a",
    "assistant: b",
    "user: c",
  ]));
test("turns after a failed answer become one message", () =>
  assert.deepEqual(messages([user("a"), answer(""), user("b")]), ["user: a\n\nb"]));

test("a story is sent as its text", () => {
  const story = new Conversation("complete");
  story.pushUser("Once");
  story.turns.push(answer(" upon a time."));
  story.pushUser("Then");
  const [path, body] = story.request("", { system: "unused", sampling: { top_k: 5 } });
  assert.equal(path, "v1/completions");
  assert.deepEqual(body, {
    top_k: 5,
    max_tokens: -1,
    stream: true,
    stream_options: { include_usage: true },
    prompt: "Once upon a time. Then",
  });
});

test("numbers out of range are not sent", () => {
  const values = {
    temperature: 0,
    top_p: 2,
    top_k: 1.5,
    min_p: NaN,
    max_tokens: 0,
    seed: null,
    repetition_penalty: "1",
  };
  assert.deepEqual(samplingFields(values), { temperature: 0 });
});

test("chunks of both routes have text; others have none", () => {
  assert.equal(delta({ choices: [{ delta: { content: "a" } }] }).text, "a");
  assert.equal(delta({ choices: [{ text: "b", finish_reason: "length" }] }).text, "b");
  assert.equal(delta({ choices: [{ delta: { reasoning_content: "c" } }] }).reasoning, "c");
  assert.deepEqual(delta({ choices: [], usage: { completion_tokens: 2 } }).usage, { completion_tokens: 2 });
  for (const strange of [null, 5, {}, { choices: "x" }, { choices: [{ delta: { content: {} } }] }])
    assert.equal(delta(strange).text, "");
});

test("statistics count tokens, or chunks of a stopped answer", () => {
  const times = { nChunks: 3, started: 0, first: 500, last: 1500, finish: "length" };
  const usage = { completion_tokens: 11, prompt_tokens: 4, prompt_tokens_details: { cached_tokens: 2 } };
  assert.equal(
    statistics({ ...times, usage }),
    "11 tokens · 10.0 tok/s · first after 0.50 s · prompt 4, 2 cached · ended at the limit of tokens",
  );
  assert.equal(statistics({ ...times, usage: null, finish: "" }), "about 3 tokens · 2.0 tok/s · first after 0.50 s");
});

test("a prompt that is too long loses its oldest part", () => {
  const prompt = (text) => shortened({ prompt: text })?.prompt;
  assert.equal(prompt("One is. Two is. Three is. Four is."), "Four is.");
  assert.equal(prompt("a long line without an end"), "an end");
  assert.equal(prompt("word"), undefined);
  const roles = (...list) =>
    shortened({ messages: list.map((role, i) => ({ role, content: `${i}` })) })?.messages.map((m) => m.content);
  assert.deepEqual(roles("system", "user", "assistant", "user"), ["0", "3"]);
  assert.equal(roles("system", "user"), undefined);
});

test("what storage has is checked", () => {
  globalThis.localStorage = {
    getItem: () =>
      JSON.stringify([user("a"), { role: "system", text: "x" }, null, { role: "user" }, { ...answer("b"), note: {} }]),
  };
  assert.deepEqual(Conversation.stored("chat").turns, [user("a")]);
  globalThis.localStorage = { getItem: () => "{" };
  assert.deepEqual(Conversation.stored("chat").turns, []);
});
