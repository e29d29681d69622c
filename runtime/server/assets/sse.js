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
  /** The beginning of a line, and whether it ends with a carriage return that may be half of a line end. */
  #rest = "";
  #isHalf = false;
  #data = [];

  /** The data of the events that these bytes complete. */
  push(bytes) {
    return this.#text(this.#decoder.decode(bytes, { stream: true }), false);
  }

  finish() {
    return this.#text(this.#decoder.decode(), true);
  }

  #text(text, isEnd) {
    const searched = this.#rest.length - (this.#isHalf ? 1 : 0);
    this.#rest += text;
    // To look into joined pieces would copy them each time.
    if (!isEnd && !this.#isHalf && !/[\r\n]/.test(text)) return [];
    const complete = [];
    const ends = /\r\n|\n|\r/g;
    let start = 0;
    ends.lastIndex = searched;
    this.#isHalf = false;
    for (let end; (end = ends.exec(this.#rest)); start = ends.lastIndex) {
      this.#isHalf = end[0] === "\r" && ends.lastIndex === this.#rest.length && !isEnd;
      if (this.#isHalf) break;
      this.#line(this.#rest.slice(start, end.index), complete);
    }
    this.#rest = this.#rest.slice(start);
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
