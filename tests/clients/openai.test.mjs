// The official `openai` package and Vercel's AI SDK against the server that TESTS_URL names.

import { createOpenAI } from "@ai-sdk/openai";
import { generateText, jsonSchema, stepCountIs, streamText, tool } from "ai";
import assert from "node:assert/strict";
import { test } from "node:test";
import OpenAI from "openai";

const baseURL = `${process.env.TESTS_URL}/v1`;
const client = new OpenAI({ baseURL, apiKey: "none", maxRetries: 0 });
const hello = { model: "scripted", messages: [{ role: "user", content: "hello" }] };
const fixed = "The answer to that is a fixed one.";
const parameters = { type: "object", properties: { city: { type: "string" } } };

test("a stream has the text and the usage of the whole answer", async () => {
  const once = { model: "stories", prompt: "Once upon a time", temperature: 0, max_tokens: 8 };
  const whole = await client.completions.create(once);
  assert.match(whole.choices[0].text, /^, there was/);
  let text = "", usage = null;
  const streamed = { ...once, stream: true, stream_options: { include_usage: true } };
  for await (const chunk of await client.completions.create(streamed)) {
    text += chunk.choices[0]?.text ?? "";
    usage = chunk.usage ?? usage;
  }
  assert.equal(text, whole.choices[0].text);
  assert.equal(usage.completion_tokens, whole.usage.completion_tokens);
});

test("a streamed chat accumulates", async () => {
  const stream = client.chat.completions.stream(hello);
  const pieces = [];
  stream.on("content", (piece) => pieces.push(piece));
  const final = await stream.finalChatCompletion();
  assert.equal(final.choices[0].message.content, fixed);
  assert.ok(pieces.length > 1);
  assert.equal(pieces.join(""), fixed);
});

test("a stream that is left is ended", async () => {
  const body = { model: "stories", prompt: "Once", max_tokens: 300, stream: true, ignore_eos: true };
  for await (const chunk of await client.completions.create(body)) {
    assert.equal(chunk.choices[0].finish_reason, null);
    break;
  }
  const running = async () => {
    const text = await (await fetch(`${process.env.TESTS_URL}/metrics`)).text();
    return text.split("\n").filter((line) => line.startsWith("vllm:num_requests_running") && !line.endsWith(" 0"));
  };
  for (let i = 0; i < 1000 && (await running()).length; i++) await new Promise((done) => setTimeout(done, 10));
  assert.deepEqual(await running(), []);
});

test("tools are called by the client's loop", async () => {
  const of = (name, run) => ({ type: "function", function: { name, parameters, parse: JSON.parse, function: run } });
  const tools = [of("get_weather", ({ city }) => `18 in ${city}`), of("get_time", () => "noon")];
  const runner = client.chat.completions.runTools({ ...hello, tools });
  assert.equal(await runner.finalContent(), "It is 18 degrees in Paris.");
  const results = runner.messages.filter((message) => message.role === "tool").map((message) => message.content);
  assert.deepEqual(results, ["18 in Paris", "noon"]);
});

test("responses stream", async () => {
  const stream = await client.responses.create({ model: "scripted", input: "hello", stream: true });
  let text = "", last = null;
  for await (const event of stream) {
    if (event.type === "response.output_text.delta") text += event.delta;
    last = event;
  }
  assert.equal(text, fixed);
  assert.equal(last.type, "response.completed");
});

test("errors have their classes", async () => {
  await assert.rejects(client.chat.completions.create({ ...hello, model: "x" }), OpenAI.NotFoundError);
  await assert.rejects(client.chat.completions.create({ ...hello, top_p: 2 }), OpenAI.BadRequestError);
  const models = (await client.models.list()).data.map((model) => model.id);
  assert.ok(models.includes("scripted"), models.join());
});

const provider = createOpenAI({ baseURL, apiKey: "none" });

for (const [name, model] of [["chat", provider.chat("scripted")], ["responses", provider.responses("scripted")]]) {
  test(`the AI SDK over ${name}: text, streams, and tools in steps`, async () => {
    const whole = await generateText({ model, prompt: "hello" });
    assert.equal(whole.text, fixed);
    assert.equal(whole.finishReason, "stop");
    assert.equal(whole.usage.outputTokens, 4);
    let text = "";
    for await (const piece of streamText({ model, prompt: "hello" }).textStream) text += piece;
    assert.equal(text, fixed);
    const calls = [];
    const of = (name, result) => tool({
      inputSchema: jsonSchema(parameters),
      execute: (input) => (calls.push([name, input]), result),
    });
    const stepped = await generateText({
      // Without memory on the server the client sends its items rather than their names.
      model, prompt: "hello", providerOptions: { openai: { store: false } }, stopWhen: stepCountIs(3),
      tools: { get_weather: of("get_weather", "18"), get_time: of("get_time", "noon") },
    });
    assert.equal(stepped.text, "It is 18 degrees in Paris.");
    assert.deepEqual(calls, [["get_weather", { city: "Paris" }], ["get_time", { zone: "UTC" }]]);
  });
}
