// Markdown to nodes. Markup in the text stays text.

import { blocks } from "./blocks.js";
import { copyButton, el } from "./dom.js";
import { inline } from "./inline.js";

/** Deeper quotes and lists stay text. */
const MAX_DEPTH = 8;

/** Shows a text that grows: blocks that did not change keep their nodes, and with them selection and focus. */
export class MarkdownView {
  #shown = [];

  constructor(root) {
    this.root = root;
  }

  update(text) {
    const parsed = blocks(text);
    const keys = parsed.map((block) => JSON.stringify(block));
    const changed = keys.findIndex((key, i) => key !== this.#shown[i]);
    const n = changed < 0 ? keys.length : changed;
    while (this.root.childNodes.length > n) this.root.lastChild.remove();
    this.root.append(...parsed.slice(n).map((block) => render(block)));
    this.#shown = keys;
  }
}

/** The element of a block. */
export function render(block, depth = 0) {
  const within = (text) => (depth < MAX_DEPTH ? blocks(text).map((b) => render(b, depth + 1)) : [text]);
  switch (block.type) {
    case "code":
      return el(
        "figure",
        { class: "code" },
        el(
          "figcaption",
          {},
          el("span", {}, block.language || "text"),
          copyButton(() => block.text),
        ),
        el("pre", { tabindex: "0" }, el("code", {}, block.text)),
      );
    case "rule":
      return el("hr");
    case "heading":
      return el(`h${Math.min(6, block.level + 2)}`, {}, ...inline(block.text));
    case "quote":
      return el("blockquote", {}, ...within(block.text));
    case "list":
      return el(
        block.start === null ? "ul" : "ol",
        { start: block.start },
        ...block.items.map((item) => itemOf(item, within)),
      );
    case "table":
      return tableOf(block);
    default:
      return el("p", {}, ...inline(block.text));
  }
}

/** An item; its first paragraph has no element of its own. */
function itemOf(text, within) {
  const [first, ...rest] = within(text);
  const isParagraph = first?.tagName?.toLowerCase() === "p";
  return el("li", {}, ...(isParagraph ? first.childNodes : [first]), ...rest);
}

function tableOf({ align, head, rows }) {
  const row = (tag, texts) =>
    el("tr", {}, ...head.map((_, i) => el(tag, { class: align[i] }, ...inline(texts[i] ?? ""))));
  return el(
    "div",
    { class: "scroll", tabindex: "0" },
    el("table", {}, el("thead", {}, row("th", head)), el("tbody", {}, ...rows.map((texts) => row("td", texts)))),
  );
}
