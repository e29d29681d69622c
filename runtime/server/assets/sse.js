// Server-sent events from bytes that may be cut anywhere.

/** Yields the data of each event of a body. */
export async function* events(body) {
  const parser = new EventParser();
  const reader = body.getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      yield* parser.push(value);
    }
    yield* parser.finish();
  } finally {
    reader.cancel().catch(() => {});
  }
}

/** Cuts bytes into lines, lines into events. An event without its blank line is incomplete and dropped. */
export class EventParser {
  #decoder = new TextDecoder();
  #rest = "";
  #searched = 0;
  #data = [];

  /** The data of the events that these bytes complete. */
  push(bytes) {
    this.#rest += this.#decoder.decode(bytes, { stream: true });
    return this.#lines(false);
  }

  finish() {
    this.#rest += this.#decoder.decode();
    return this.#lines(true);
  }

  #lines(isEnd) {
    const complete = [];
    const text = this.#rest;
    const ends = /\r\n|\n|\r/g;
    let start = 0;
    ends.lastIndex = this.#searched;
    for (let end; (end = ends.exec(text)); start = ends.lastIndex) {
      // A carriage return may be half of a line end.
      if (end[0] === "\r" && ends.lastIndex === text.length && !isEnd) break;
      this.#line(text.slice(start, end.index), complete);
    }
    this.#rest = text.slice(start);
    this.#searched = this.#rest.endsWith("\r") ? this.#rest.length - 1 : this.#rest.length;
    return complete;
  }

  #line(line, complete) {
    if (line === "") {
      if (this.#data.length > 0) complete.push(this.#data.join("\n"));
      this.#data = [];
    } else if (line === "data") {
      this.#data.push("");
    } else if (line.startsWith("data:")) {
      this.#data.push(line.slice(line[5] === " " ? 6 : 5));
    }
  }
}
