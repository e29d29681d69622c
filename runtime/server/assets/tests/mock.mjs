// A server with the routes that the page uses, for tests of the page without an engine.
//
//   node runtime/server/assets/tests/mock.mjs 8090                           then open http://127.0.0.1:8090/
//   node runtime/server/assets/tests/mock.mjs 8090 http://127.0.0.1:8080     the same page over a real server's routes
//
// The last message picks what happens: `error`, `disconnect`, `midway`, `slow`, `hostile`, `think`; others get markdown.

import { readFile } from "node:fs/promises";
import { createServer, request as forward } from "node:http";
import { basename, extname } from "node:path";
import { fileURLToPath } from "node:url";

const ASSETS = new URL("..", import.meta.url);
const TYPES = { ".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml" };

/** Stricter than the page needs: any parsing of markup by a script is an error too. */
export const POLICY =
  "default-src 'self'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; object-src 'none'; " +
  "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

export const EVIL_NAME = "tiny<img src=x onerror=alert(1)>";
const MODELS = ["qwen3-0.6b-q4_0", "stories", EVIL_NAME];
const HOSTILE =
  "<script>alert(1)</script> <img src=x onerror=alert(1)>\n\n[a](javascript:alert(1)) [b](https://x.org)\n\n```<b>\n</code><script>\n";
const ANSWER = `A **KV cache** keeps the keys and values of tokens that were computed before:

1. *Prefill* computes the prompt, in chunks.
2. *Decode* computes one token per step and reads the cache.

\`\`\`python
def slot(block_table, position):
    return block_table[position // 16] * 16 + position % 16
\`\`\`

| phase | bound by |
|---|---|
| prefill | arithmetic |
| decode | memory bandwidth |

See [the glossary](https://example.org/glossary).`;

/** Starts a server; `state` counts what it saw and sets what it does. */
export async function start(port = 0, state = {}) {
  Object.assign(state, { key: null, delay: 5, requests: [], aborted: 0, nMetrics: 0, tokens: 1000, ...state });
  const server = createServer((request, response) => {
    answer(request, response, state).catch((e) => {
      response.destroy();
      console.error(e);
    });
  });
  await new Promise((ready) => server.listen(port, "127.0.0.1", ready));
  const close = () => new Promise((closed) => (server.close(closed), server.closeAllConnections()));
  return { url: `http://127.0.0.1:${server.address().port}/`, state, close };
}

async function answer(request, response, state) {
  const path = new URL(request.url, "http://x").pathname;
  const json = (body, status = 200) => {
    response.writeHead(status, { "content-type": "application/json" });
    response.end(JSON.stringify(body));
  };
  if (path === "/" || path.startsWith("/assets/")) return asset(path, response);
  if (state.upstream) return pass(request, response, state.upstream);
  if (state.key !== null && request.headers.authorization !== `Bearer ${state.key}`) {
    return json({ error: { message: "the API key is missing or wrong" } }, 401);
  }
  const body = request.method === "POST" ? await bodyOf(request) : null;
  if (body) state.requests.push({ path, body });
  switch (path) {
    case "/v1/models":
      return json({ object: "list", data: MODELS.map((id) => ({ id, object: "model" })) });
    case "/api/ps":
      return json({ models: MODELS.slice(0, 2).map((name) => ({ name: `${name}:latest` })) });
    case "/api/show":
      return json({ template: body.model === "stories" ? "" : "{{ messages }}" });
    case "/props":
      return json(props());
    case "/metrics":
      response.writeHead(200, { "content-type": "text/plain" });
      return response.end(metrics(state));
    case "/v1/chat/completions":
      return chat(body, response, state);
    case "/v1/completions":
      return stream(response, state, body.prompt ? " a brave dragon lived in a red house." : "One day,", (text) => ({
        text,
      }));
    default:
      return json({ error: { message: `there is no ${path}` } }, 404);
  }
}

function pass(request, response, upstream) {
  const { method, headers } = request;
  const passed = forward(new URL(request.url, upstream), { method, headers }, (answered) => {
    response.writeHead(answered.statusCode, answered.headers);
    answered.pipe(response);
  });
  passed.on("error", () => response.destroy());
  response.on("close", () => passed.destroy());
  request.pipe(passed);
}

async function asset(path, response) {
  const name = path === "/" ? "index.html" : basename(path);
  const bytes = await readFile(new URL(name, ASSETS)).catch(() => null);
  const headers = {
    "content-type": `${TYPES[extname(name)]}; charset=utf-8`,
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
  };
  response.writeHead(bytes ? 200 : 404, headers);
  response.end(bytes ?? "");
}

async function chat(body, response, state) {
  const text = body.messages.at(-1).content;
  const content = (piece) => ({ delta: { content: piece } });
  if (text === "error") {
    response.writeHead(503, { "content-type": "application/json", "retry-after": "2" });
    return response.end(JSON.stringify({ error: { message: "the queue is <b>full</b>" } }));
  }
  if (text === "disconnect") return stream(response, state, "an answer that is cut", content, { cutAfter: 3 });
  if (text === "midway") return stream(response, state, "an answer that fails", content, { failAfter: 3 });
  if (text === "slow") return stream(response, state, "word ".repeat(400), content, { delay: 50 });
  if (text === "hostile") return stream(response, state, HOSTILE, content);
  if (text === "think") {
    const parts = (piece, i) => ({ delta: i < 4 ? { reasoning_content: piece } : { content: piece } });
    return stream(response, state, "first I count, then 42", parts);
  }
  return stream(response, state, ANSWER, content);
}

/** Streams a text in small pieces whose bytes are cut without regard to lines. */
async function stream(response, state, text, choice, { cutAfter, failAfter, delay = state.delay } = {}) {
  response.writeHead(200, { "content-type": "text/event-stream" });
  let isOpen = true;
  response.on("close", () => {
    isOpen = false;
    state.aborted += response.writableFinished ? 0 : 1;
  });
  const event = (value) => `data: ${JSON.stringify(value)}\n\n`;
  const pieces = text.match(/\s*\S+|\s+$/g) ?? [];
  state.running = (state.running ?? 0) + 1;
  for (const [i, piece] of pieces.entries()) {
    if (!isOpen) break;
    if (i === cutAfter) response.destroy();
    if (i === failAfter) {
      response.write(event({ error: { message: "the device failed" } }));
      response.end("data: [DONE]\n\n");
    }
    const bytes = Buffer.from(
      event({ choices: [{ index: 0, ...choice(piece, i), finish_reason: null }], usage: null }),
    );
    if (isOpen && !response.writableEnded) {
      response.write(bytes.subarray(0, 7));
      await pause(delay / 2);
      response.write(bytes.subarray(7));
    }
    state.tokens++;
    await pause(delay / 2);
  }
  state.running--;
  if (!isOpen || response.writableEnded) return;
  response.write(event({ choices: [{ index: 0, delta: {}, text: "", finish_reason: "stop" }] }));
  const usage = { prompt_tokens: 23, completion_tokens: pieces.length, prompt_tokens_details: { cached_tokens: 16 } };
  response.write(event({ choices: [], usage }));
  response.end("data: [DONE]\n\n");
}

function metrics(state) {
  state.nMetrics++;
  return `# HELP vllm:num_requests_running Requests.
vllm:num_requests_running{model_name="${MODELS[0]}"} ${state.running ?? 0}
vllm:num_requests_waiting{model_name="${MODELS[0]}"} 0
vllm:num_requests_swapped{model_name="${MODELS[0]}"} 0
vllm:kv_cache_usage_perc{model_name="${MODELS[0]}"} ${state.running ? 0.37 : 0.04}
vllm:num_preemptions_total{model_name="${MODELS[0]}"} 3
vllm:prefix_cache_queries_total 400
vllm:prefix_cache_hits_total 250
vllm:generation_tokens_total ${state.tokens}
llmrt:fallback_nodes{device="cpu"} 2
`;
}

function props() {
  const devices = [
    { device: "cuda:0", n_nodes: 812, compute_bytes: 52_428_800 },
    { device: "cpu", n_nodes: 2, compute_bytes: 1_048_576 },
  ];
  const fallbacks = [{ op: "get_rows", device: "cpu", reason: "TYPE: q4_k", count: 2, example: "<b>token_embd</b>" }];
  return {
    model_alias: MODELS[0],
    chat_template: "{{ messages }}",
    build_info: "llmrt-0.1.0",
    default_generation_settings: { n_ctx: 4096 },
    placement: { devices, fallbacks, splits: [{}, {}], n_copies: 1, copied_bytes: 4096 },
  };
}

async function bodyOf(request) {
  let text = "";
  for await (const piece of request) text += piece;
  return JSON.parse(text);
}

const pause = (ms) => new Promise((done) => setTimeout(done, ms));

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { url } = await start(Number(process.argv[2] ?? 8090), { delay: 40, upstream: process.argv[3] });
  console.log(url);
}
