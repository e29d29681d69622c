// node --test runtime/server/assets/tests/*.test.mjs
import assert from "node:assert/strict";
import { test } from "node:test";
import { root } from "./dom.mjs";
import { MarkdownView } from "../markdown.js";

const ANCHOR = (href) => `<a href="${href}" target="_blank" rel="noopener noreferrer nofollow">`;
const CODE = (language) =>
  `<figure class="code"><figcaption><span>${language}</span><button type="button" class="small">Copy</button></figcaption>` +
  '<pre tabindex="0"><code>';
const END = "</code></pre></figure>";

function html(text) {
  const element = root();
  new MarkdownView(element).update(text);
  return element.innerHTML;
}

function check(text, expected) {
  assert.equal(html(text), expected);
}

test("lines of a paragraph stay lines", () => check("a\nb\n\nc", "<p>a\nb</p><p>c</p>"));
test("emphasis nests", () =>
  check("**a *b* c** ~~d~~ _e_", "<p><strong>a <em>b</em> c</strong> <del>d</del> <em>e</em></p>"));
test("three marks are both", () => check("***a***", "<p><strong><em>a</em></strong></p>"));
test("strong ends within emphasis", () => check("*a **b***", "<p><em>a <strong>b</strong></em></p>"));
test("marks between spaces or in words stay", () =>
  check("2 * 3 * 4 snake_case_name", "<p>2 * 3 * 4 snake_case_name</p>"));
test("unclosed marks stay", () => check("**a `b [c](d", "<p>**a `b [c](d</p>"));
test("code keeps its marks", () => check("`**a**` ``b`c``", "<p><code>**a**</code> <code>b`c</code></p>"));
test("a backslash makes a mark literal", () => check("\\*a\\* \\q", "<p>*a* \\q</p>"));
test("headings are below those of the page", () => check("# a\n###### b #", "<h3>a</h3><h6>b</h6>"));
test("lists nest", () =>
  check(
    "- a\n- b\n  1. c\n  2. d\n- e",
    '<ul><li>a</li><li>b<ol start="1"><li>c</li><li>d</li></ol></li><li>e</li></ul>',
  ));
test("an item holds code", () =>
  check("1. a\n   ```\n   x\n   ```\n2. b", `<ol start="1"><li>a${CODE("text")}x${END}</li><li>b</li></ol>`));
test("items with blank lines between are one list", () =>
  check("* a\n\n* b\n\nc", "<ul><li>a</li><li>b</li></ul><p>c</p>"));
test("an empty item", () => check("-\n- a", "<ul><li></li><li>a</li></ul>"));
test("a quote holds blocks", () => check("> a\n> - b", "<blockquote><p>a</p><ul><li>b</li></ul></blockquote>"));
test("a rule", () => check("a\n\n---\n* * *", "<p>a</p><hr></hr><hr></hr>"));
test("fenced code is verbatim", () =>
  check("```js x\n<b> **a**\n\n- c\n```\nd", `${CODE("js")}&lt;b> **a**\n\n- c${END}<p>d</p>`));
test("an unclosed fence is code to the end", () =>
  check("a\n~~~\nb\n```\n", `<p>a</p>${CODE("text")}b\n\`\`\`\n${END}`));
test("a longer fence holds a shorter", () => check("````\n```\n````", `${CODE("text")}\`\`\`${END}`));
test("line ends may be CRLF", () => check("```\r\na\r\n```\r\n", `${CODE("text")}a${END}`));
test("tables have aligned cells", () =>
  check(
    "| a | b |\n|---|--:|\n| *1* | 2 |\n| 3 |",
    '<div class="scroll" tabindex="0"><table><thead><tr><th>a</th><th class="end">b</th></tr></thead>' +
      '<tbody><tr><td><em>1</em></td><td class="end">2</td></tr><tr><td>3</td><td class="end"></td></tr></tbody></table></div>',
  ));
test("a line with bars is no table", () => check("a | b\nc | d", "<p>a | b\nc | d</p>"));

test("links have safe schemes", () =>
  check(
    "[a *b*](https://x.org/?q=1&r=(2)) [m](mailto:a@b.c)",
    `<p>${ANCHOR("https://x.org/?q=1&amp;r=(2)")}a <em>b</em></a> ${ANCHOR("mailto:a@b.c")}m</a></p>`,
  ));
test("addresses in text are links", () =>
  check(
    "see https://x.org/a_b_c, (http://y.org/).",
    `<p>see ${ANCHOR("https://x.org/a_b_c")}https://x.org/a_b_c</a>, (${ANCHOR("http://y.org/")}http://y.org/</a>).</p>`,
  ));
for (const url of [
  "javascript:alert(1)",
  "JaVaScRiPt:alert(1)",
  " javascript:alert(1)",
  "java\tscript:alert(1)",
  "data:text/html,<script>x</script>",
  "vbscript:x",
  "file:///etc/passwd",
  "//x.org",
  "/v1/models",
  "blob:https://x.org/1",
]) {
  test(`${JSON.stringify(url)} is no link`, () => assert.ok(!html(`[a](${url}) ![b](${url})`).includes("<a")));
}
test("an image is no request", () =>
  check("![a](https://x.org/i.png)", `<p>!${ANCHOR("https://x.org/i.png")}a</a></p>`));
test("no link within a link", () =>
  check("[a https://y.org](https://x.org)", `<p>${ANCHOR("https://x.org/")}a https://y.org</a></p>`));
test("a quote does not leave the attribute", () =>
  assert.ok(!/<a[^>]*" onclick/.test(html('[a](https://x.org/"onclick="alert(1))'))));

for (const text of [
  "<script>alert(1)</script>",
  "<img src=x onerror=alert(1)>",
  "a <b>b</b>",
  "- <svg onload=x>",
  "> <i>",
  "# <i>",
  "`<i>`",
  "```<i>\n<i>\n```",
  "|<i>|\n|-|\n|<i>|",
  "[<i>](https://x.org)",
]) {
  test(`${JSON.stringify(text)} stays text`, () => assert.ok(!/<(script|img|b|svg|i)\b/.test(html(text))));
}

const hostile = {
  "one long line": "x".repeat(1_000_000),
  "open brackets": "[".repeat(100_000),
  "half links": "[a](".repeat(25_000),
  stars: "*".repeat(100_000),
  openers: "*a ".repeat(30_000) + "**b ".repeat(30_000),
  "nested openers": "*a **b ".repeat(15_000) + "** *".repeat(15_000),
  "ticks of all lengths": Array.from({ length: 400 }, (_, i) => "`".repeat(i + 1)).join(" "),
  spaces: " ".repeat(100_000) + "x",
  "a rule that is none": "- ".repeat(50_000) + "x",
  "underline of a table": "a|b\n" + " ".repeat(100_000) + "-|" + " ".repeat(100_000) + "x",
  "nested quotes": "> ".repeat(20_000) + "x",
  "nested lists": Array.from({ length: 300 }, (_, i) => " ".repeat(2 * i) + "- x").join("\n"),
  "unclosed fences": "```\n".repeat(20_001),
  "many columns": "a|".repeat(5000) + "\n" + "-|".repeat(5000) + "\n" + "|\n".repeat(5000),
  "half a surrogate": "*\ud83d* _\udc00_",
  addresses: "http://".repeat(20_000),
};
for (const [name, text] of Object.entries(hostile)) {
  test(`${name}: bounded time`, () => {
    const started = performance.now();
    html(text);
    const ms = performance.now() - started;
    assert.ok(ms < 2000, `${ms.toFixed(0)} ms`);
  });
}

test("a text that grows keeps the nodes of its finished blocks", () => {
  const element = root();
  const view = new MarkdownView(element);
  const text = "# a\n\nb **c**\n\n```\nd\n```\n\n- e\n- f";
  for (let n = 0; n <= text.length; n++) view.update(text.slice(0, n));
  assert.equal(element.innerHTML, html(text));
  const first = element.childNodes[0];
  view.update(`${text}\n\ng`);
  assert.equal(element.childNodes[0], first);
  view.update("h");
  assert.equal(element.innerHTML, "<p>h</p>");
});
