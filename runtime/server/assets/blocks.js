// Blocks of markdown: fenced code, headings, lists, quotes, tables, paragraphs. Texts to plain objects, no elements.

const FENCE = /^( *)(`{3,}|~{3,})([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6}) +(.*)$/;
const RULE = /^ {0,3}([-*_])(?: *\1){2,} *$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])( +|$)/;

/** Most columns of a table: rows are filled up to the width of the first. */
const MAX_COLUMNS = 64;

/** The blocks of a text, as plain objects. */
export function blocks(text) {
  const lines = text.replace(/\r\n?/g, "\n").replace(/\t/g, "    ").split("\n");
  const found = [];
  for (let at = 0; at < lines.length;) {
    if (lines[at].trim() === "") {
      at++;
      continue;
    }
    const [block, end] =
      code(lines, at) ??
      single(lines, at) ??
      quote(lines, at) ??
      list(lines, at) ??
      table(lines, at) ??
      paragraph(lines, at);
    found.push(block);
    at = end;
  }
  return found;
}

function code(lines, at) {
  const [, indent, fence, info] = FENCE.exec(lines[at]) ?? [];
  if (!fence) return null;
  const closes = (line) => line.trim().startsWith(fence) && line.trim() === fence[0].repeat(line.trim().length);
  let end = at + 1;
  while (end < lines.length && !closes(lines[end])) end++;
  const text = lines
    .slice(at + 1, end)
    .map((line) => dedent(line, indent.length))
    .join("\n");
  return [{ type: "code", language: info.trim().split(" ", 1)[0], text }, end + 1];
}

function single(lines, at) {
  if (RULE.test(lines[at])) return [{ type: "rule" }, at + 1];
  const [, marks, text] = HEADING.exec(lines[at]) ?? [];
  return marks ? [{ type: "heading", level: marks.length, text: text.trim().replace(/ #+$/, "") }, at + 1] : null;
}

function quote(lines, at) {
  let end = at;
  while (end < lines.length && QUOTE.test(lines[end])) end++;
  const text = lines
    .slice(at, end)
    .map((line) => line.replace(QUOTE, ""))
    .join("\n");
  return end > at ? [{ type: "quote", text }, end] : null;
}

function list(lines, at) {
  const first = ITEM.exec(lines[at]);
  if (!first) return null;
  const isOrdered = first[2].length > 1;
  const items = [];
  let end = at;
  for (let item; (item = end < lines.length && ITEM.exec(lines[end]));) {
    if (item[2].length > 1 !== isOrdered || RULE.test(lines[end])) break;
    const width = item[1].length + item[2].length + 1;
    const own = [lines[end].slice(item[0].length)];
    for (end++; end < lines.length && belongs(lines, end, width); end++) own.push(dedent(lines[end], width));
    items.push(own.join("\n").trimEnd());
    while (end < lines.length && lines[end].trim() === "" && ITEM.test(lines[end + 1] ?? "")) end++;
  }
  return items.length ? [{ type: "list", start: isOrdered ? parseInt(first[2], 10) : null, items }, end] : null;
}

/** Whether a line continues an item whose text starts at this column. */
function belongs(lines, at, width) {
  const indent = (line) => line.length - line.trimStart().length;
  const [line, next] = [lines[at], lines[at + 1] ?? ""];
  if (line.trim() === "") return next.trim() !== "" && indent(next) >= width;
  return indent(line) >= width || (lines[at - 1].trim() !== "" && !startsBlock(lines, at));
}

function table(lines, at) {
  if (!isTable(lines, at)) return null;
  const align = cells(lines[at + 1]).map((c) => (c.endsWith(":") ? (c.startsWith(":") ? "center" : "end") : null));
  let end = at + 2;
  while (end < lines.length && lines[end].includes("|")) end++;
  return [{ type: "table", align, head: cells(lines[at]), rows: lines.slice(at + 2, end).map(cells) }, end];
}

function isTable(lines, at) {
  const under = lines[at + 1] ?? "";
  if (!lines[at].includes("|") || !under.includes("-")) return false;
  const marks = cells(under);
  const isUnderline = marks.length <= MAX_COLUMNS && marks.every((c) => /^:?-+:?$/.test(c));
  return isUnderline && marks.length === cells(lines[at]).length;
}

function cells(line) {
  const inner = line.trim().replace(/^\|/, "").replace(/\|$/, "");
  return inner.split("|").map((cell) => cell.trim());
}

function paragraph(lines, at) {
  let end = at + 1;
  while (end < lines.length && lines[end].trim() !== "" && !startsBlock(lines, end)) end++;
  return [
    {
      type: "paragraph",
      text: lines
        .slice(at, end)
        .map((line) => line.trim())
        .join("\n"),
    },
    end,
  ];
}

function startsBlock(lines, at) {
  return [FENCE, HEADING, RULE, QUOTE, ITEM].some((start) => start.test(lines[at])) || isTable(lines, at);
}

const dedent = (line, n) => line.slice(Math.min(n, line.length - line.trimStart().length));
