// node --test runtime/server/assets/tests/*.test.mjs
import assert from "node:assert/strict";
import { test } from "node:test";
import { EventParser } from "../sse.js";

const bytes = (text) => new TextEncoder().encode(text);

/** The events of a text whose bytes come in pieces. */
function parse(pieces) {
  const parser = new EventParser();
  return [...pieces.flatMap((piece) => parser.push(piece)), ...parser.finish()];
}

/** Cut at every place, and byte by byte, the text has these events. */
function check(text, expected) {
  const all = bytes(text);
  for (let cut = 0; cut <= all.length; cut++) {
    assert.deepEqual(parse([all.slice(0, cut), all.slice(cut)]), expected, `cut at byte ${cut}`);
  }
  assert.deepEqual(parse([...all].map((byte) => Uint8Array.of(byte))), expected, "byte by byte");
}

test("events end with a blank line", () => check('data: {"a":1}\n\ndata: [DONE]\n\n', ['{"a":1}', "[DONE]"]));
test("line ends may be CRLF or CR", () => check("data: a\r\n\r\ndata: b\r\rdata: c\n\n", ["a", "b", "c"]));
test("characters of several bytes may be cut", () => check("data: é€😀\n\ndata: 中\n\n", ["é€😀", "中"]));
test("lines of data are joined", () => check("data: a\ndata: b\ndata\n\n", ["a\nb\n"]));
test("comments, names and ids are skipped", () =>
  check(": keep\nevent: x\nid: 1\nretry: 9\ndata:a\n\n: end\n\n", ["a"]));
test("only one space after the colon is no data", () => check("data:  a \n\n", [" a "]));
test("an event without its blank line is dropped", () => check('data: a\n\ndata: {"cut', ["a"]));
test("a byte order mark is no data", () => check("\uFEFFdata: a\n\n", ["a"]));

test("a long line in small pieces takes linear time", () => {
  const parser = new EventParser();
  const piece = bytes("x".repeat(16));
  const started = performance.now();
  parser.push(bytes("data: "));
  for (let i = 0; i < 20_000; i++) parser.push(piece);
  assert.equal(parser.push(bytes("\n\n"))[0].length, 320_000);
  assert.ok(performance.now() - started < 3000);
});
