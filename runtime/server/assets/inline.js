// Inline markdown to nodes: code, emphasis, links. One pass with bounded look-ahead, so that hostile text costs no more than
// long text.

import { el } from "./dom.js";

/** Schemes of links; all others stay text. */
const SCHEMES = ["http:", "https:", "mailto:"];

/** Longest label and address of a link. */
const MAX_LABEL = 400;
const MAX_URL = 2000;

const MAX_DEPTH = 6;
const SPECIAL = /[\\`*_~[]|\bhttps?:\/\//g;
const BARE_URL = /https?:\/\/[^\s<>"`]+/y;

/** The nodes of a text; strings are text. */
export function inline(text, depth = 0, inLink = false) {
  return depth > MAX_DEPTH ? [text] : new Scanner(text, depth, inLink).nodes();
}

/** The address as a link may have it, or null. */
export function safeUrl(url) {
  try {
    const parsed = new URL(url);
    return SCHEMES.includes(parsed.protocol) ? parsed.href : null;
  } catch {
    return null;
  }
}

class Scanner {
  constructor(text, depth, inLink) {
    Object.assign(this, { text, depth, inLink });
    /** Delimiters that do not close anywhere after the current place. */
    this.unclosed = new Set();
  }

  nodes() {
    const nodes = [];
    let literal = "";
    let at = 0;
    while (at < this.text.length) {
      SPECIAL.lastIndex = at;
      const next = SPECIAL.exec(this.text)?.index ?? this.text.length;
      literal += this.text.slice(at, next);
      at = next;
      if (at === this.text.length) break;
      const found = this.special(at);
      if (found?.node) {
        if (literal) nodes.push(literal);
        nodes.push(found.node);
        literal = "";
      } else {
        literal += found?.literal ?? this.text[at];
      }
      at = found?.end ?? at + 1;
    }
    if (literal) nodes.push(literal);
    return nodes;
  }

  /** What begins here: a node or a literal, and where it ends; null: an ordinary character. */
  special(at) {
    switch (this.text[at]) {
      case "\\": {
        const next = this.text[at + 1] ?? "";
        return /[!-/:-@[-`{-~]/.test(next) ? { literal: next, end: at + 2 } : null;
      }
      case "`":
        return this.code(at);
      case "[":
        return this.inLink ? null : this.link(at);
      case "*":
      case "_":
      case "~":
        return this.emphasis(at);
      default:
        return this.inLink ? null : this.bareUrl(at);
    }
  }

  code(at) {
    const start = this.runEnd(at);
    const ticks = this.text.slice(at, start);
    for (let open = start; !this.unclosed.has(ticks);) {
      open = this.text.indexOf(ticks, open);
      if (open < 0) break;
      const end = this.runEnd(open);
      if (end - open === ticks.length) {
        return { node: el("code", {}, this.text.slice(start, open).replace(/^ (.+) $/s, "$1")), end };
      }
      open = end;
    }
    this.unclosed.add(ticks);
    return { literal: ticks, end: start };
  }

  emphasis(at) {
    const { text } = this;
    const mark = text[at];
    const isDouble = text[at + 1] === mark;
    const delimiter = isDouble ? mark + mark : mark;
    const start = at + delimiter.length;
    const isWord = (c) => c !== undefined && /[\p{L}\p{N}_]/u.test(c);
    const opens = start < text.length && !/\s/.test(text[start]) && !(mark === "_" && isWord(text[at - 1]));
    if (delimiter === "~" || !opens || this.unclosed.has(delimiter)) return { literal: delimiter, end: start };
    for (let run = text.indexOf(mark, start); run >= 0;) {
      const end = this.runEnd(run);
      const closes = isDouble ? end - run >= 2 : end - run !== 2;
      if (closes && run > start && !/\s/.test(text[run - 1]) && !(mark === "_" && isWord(text[end]))) {
        const inner = text.slice(start, end - delimiter.length);
        const tag = mark === "~" ? "del" : isDouble ? "strong" : "em";
        return { node: el(tag, {}, ...inline(inner, this.depth + 1, this.inLink)), end };
      }
      run = text.indexOf(mark, end);
    }
    this.unclosed.add(delimiter);
    return { literal: delimiter, end: start };
  }

  link(at) {
    const label = this.closing(at, "[", "]", MAX_LABEL);
    if (label < 0 || this.text[label + 1] !== "(") return null;
    const end = this.closing(label + 1, "(", ")", MAX_URL);
    if (end < 0) return null;
    const url = safeUrl(
      this.text
        .slice(label + 2, end)
        .trim()
        .split(/\s/, 1)[0],
    );
    const source = this.text.slice(at, end + 1);
    if (url === null) return { literal: source, end: end + 1 };
    return { node: anchor(url, inline(this.text.slice(at + 1, label), this.depth + 1, true)), end: end + 1 };
  }

  bareUrl(at) {
    BARE_URL.lastIndex = at;
    let url = BARE_URL.exec(this.text)?.[0].slice(0, MAX_URL);
    if (!url) return null;
    url = url.replace(/[.,;:!?'*_~]{1,9}$/, "");
    if (url.endsWith(")") && !url.includes("(")) url = url.slice(0, -1);
    const href = safeUrl(url);
    return href === null ? null : { node: anchor(href, [url]), end: at + url.length };
  }

  /** Where the bracket that opens here closes, within a bound; -1: nowhere. */
  closing(at, open, close, limit) {
    const last = Math.min(this.text.length, at + limit);
    for (let i = at, n = 0; i < last; i++) {
      if (this.text[i] === "\\") i++;
      else if (this.text[i] === open) n++;
      else if (this.text[i] === close && --n === 0) return i;
    }
    return -1;
  }

  runEnd(at) {
    let end = at;
    while (this.text[end] === this.text[at]) end++;
    return end;
  }
}

function anchor(href, nodes) {
  return el("a", { href, target: "_blank", rel: "noopener noreferrer nofollow" }, ...nodes);
}
