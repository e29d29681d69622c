// Conversations as data: turns, what is sent for them, what a chunk adds, what is stored. No elements, no network.

import { load, save } from "./store.js";

/** A turn is `{ role: "user" | "assistant", text, reasoning?, note?, problem? }`. */
export class Conversation {
  constructor(mode, turns = []) {
    Object.assign(this, { mode, turns });
  }

  static stored(mode) {
    const turns = load(`turns.${mode}`, []);
    return new Conversation(mode, Array.isArray(turns) ? turns.filter(isTurn) : []);
  }

  /** Returns whether there was room. */
  store() {
    return save(`turns.${this.mode}`, this.turns);
  }

  get last() {
    return this.turns.at(-1);
  }

  /** Adds what the user wrote. Words that continue a story are kept apart from its end. */
  pushUser(text) {
    const end =
      this.turns
        .map((turn) => turn.text)
        .join("")
        .at(-1) ?? "";
    const space = this.mode === "complete" && /\S/.test(end) && /^[\p{L}\p{N}]/u.test(text) ? " " : "";
    this.turns.push({ role: "user", text: space + text });
  }

  /** The route and the body of the request for the next answer. */
  request(model, { system, sampling }) {
    const body = { ...(model ? { model } : {}), ...sampling, stream: true, stream_options: { include_usage: true } };
    if (this.mode === "chat") {
      return ["v1/chat/completions", { ...body, messages: messages(system, this.turns) }];
    }
    // Without a number the route has a limit of a few tokens; a negative one is no limit.
    const prompt = this.turns.map((turn) => turn.text).join("");
    return ["v1/completions", { ...body, max_tokens: body.max_tokens ?? -1, prompt }];
  }
}

/** Turns as messages; turns of one role in a row, as after an error, become one message. */
function messages(system, turns) {
  const merged = system ? [{ role: "system", content: system }] : [];
  for (const { role, text } of turns) {
    if (text === "") continue;
    if (merged.at(-1)?.role === role) merged.at(-1).content += `\n\n${text}`;
    else merged.push({ role, content: text });
  }
  return merged;
}

/** The body of a request without its oldest part, for a prompt that the context does not hold; null: nothing can go. */
export function shortened(body) {
  if (body.prompt !== undefined) {
    const half = body.prompt.slice(Math.ceil(body.prompt.length / 2));
    const start = /(?:[.!?]\s+|\n)(?=\S)/.exec(half) ?? /\s(?=\S)/.exec(half);
    return start ? { ...body, prompt: half.slice(start.index + start[0].length) } : null;
  }
  const isSystem = (message) => message.role === "system";
  const turns = body.messages.filter((message) => !isSystem(message));
  const next = turns.findIndex((message, i) => i > 0 && message.role === "user");
  return next < 0 ? null : { ...body, messages: [...body.messages.filter(isSystem), ...turns.slice(next)] };
}

/** What a chunk of either route adds. */
export function delta(chunk) {
  const choice = chunk?.choices?.[0];
  const text = (value) => (typeof value === "string" ? value : "");
  return {
    text: text(choice?.delta?.content) || text(choice?.text),
    reasoning: text(choice?.delta?.reasoning_content),
    finish: text(choice?.finish_reason),
    usage: chunk?.usage ?? null,
  };
}

/** Counts and times of an answer; without `usage`, of an answer that was stopped, chunks are counted. */
export function statistics({ usage, nChunks, started, first, last, finish }) {
  const n = usage?.completion_tokens ?? nChunks;
  const parts = [`${usage ? "" : "about "}${n} token${n === 1 ? "" : "s"}`];
  if (n > 1 && last > first) parts.push(`${((1000 * (n - 1)) / (last - first)).toFixed(1)} tok/s`);
  if (first !== null) parts.push(`first after ${((first - started) / 1000).toFixed(2)} s`);
  const cached = usage?.prompt_tokens_details?.cached_tokens;
  if (usage?.prompt_tokens) parts.push(`prompt ${usage.prompt_tokens}${cached ? `, ${cached} cached` : ""}`);
  if (finish === "length") parts.push("ended at the limit of tokens");
  return parts.join(" · ");
}

function isTurn(turn) {
  const optional = [turn?.reasoning, turn?.note, turn?.problem].every((x) => x === undefined || typeof x === "string");
  return optional && typeof turn?.text === "string" && ["user", "assistant"].includes(turn.role);
}
