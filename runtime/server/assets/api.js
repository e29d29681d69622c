// The server's routes, relative to the page.

import { events } from "./sse.js";

/** What the server or the network refused, in its own words. */
export class ApiError extends Error {
  constructor(message, status = 0, code = null) {
    super(message);
    Object.assign(this, { status, code });
  }
}

/** Calls with the API key that `key` returns, if it returns one. */
export class Api {
  constructor(key = () => "") {
    this.key = key;
  }

  async json(path, body, signal) {
    const response = await this.#fetch(path, body, signal);
    return response.json();
  }

  async text(path, signal) {
    const response = await this.#fetch(path, undefined, signal);
    return response.text();
  }

  /** Yields the chunks of a streamed answer. An answer that ends without `[DONE]` was cut. */
  async *stream(path, body, signal) {
    const response = await this.#fetch(path, body, signal);
    const type = response.headers.get("content-type") ?? "";
    if (!type.startsWith("text/event-stream")) {
      throw new ApiError(`The server sent ${type || "no type"}: expected text/event-stream.`);
    }
    try {
      for await (const data of events(response.body)) {
        if (data === "[DONE]") return;
        yield chunk(data);
      }
    } catch (e) {
      if (e instanceof ApiError || e.name === "AbortError") throw e;
      throw new ApiError("The connection was lost before the answer was complete.");
    }
    throw new ApiError("The connection was closed before the answer was complete.");
  }

  async #fetch(path, body, signal) {
    const headers = {};
    const key = this.key();
    if (key) headers.Authorization = `Bearer ${key}`;
    if (body !== undefined) headers["Content-Type"] = "application/json";
    const init = { headers, signal, method: body === undefined ? "GET" : "POST", cache: "no-store" };
    if (body !== undefined) init.body = JSON.stringify(body);
    let response;
    try {
      response = await fetch(path, init);
    } catch (e) {
      if (e.name === "AbortError") throw e;
      throw new ApiError("The server does not answer. Check that it is running, then try again.");
    }
    if (!response.ok) throw await problem(response);
    return response;
  }
}

function chunk(data) {
  let value;
  try {
    value = JSON.parse(data);
  } catch {
    throw new ApiError(`The server sent an event that is not JSON: ${data.slice(0, 200)}`);
  }
  if (value?.error) throw new ApiError(messageOf(value) ?? "The server reported an error.");
  return value;
}

/** A refusal and its message: OpenAI's form, Ollama's form, or the start of the body. */
async function problem(response) {
  const text = await response.text().catch(() => "");
  let body = null;
  try {
    body = JSON.parse(text);
  } catch {
    // No JSON.
  }
  const message = messageOf(body) ?? (text.trim().slice(0, 500) || response.statusText || "no message");
  const seconds = response.headers.get("retry-after");
  const retry = seconds ? ` Try again in ${seconds} s.` : "";
  return new ApiError(`${response.status}: ${message}${retry}`, response.status, body?.error?.code);
}

function messageOf(body) {
  const error = body?.error;
  if (typeof error === "string") return error;
  return typeof error?.message === "string" ? error.message : null;
}
