// A document for tests: elements, texts and their markup, escaped as a browser writes it.

class Text {
  constructor(text) {
    this.textContent = String(text);
  }
  get outerHTML() {
    return escape(this.textContent);
  }
}

class Element {
  constructor(tag) {
    Object.assign(this, { tagName: tag.toUpperCase(), childNodes: [], attributes: new Map(), listeners: {} });
  }
  append(...nodes) {
    for (const node of nodes) {
      const child = node instanceof Element || node instanceof Text ? node : new Text(node);
      child.remove?.();
      child.parent = this;
      this.childNodes.push(child);
    }
  }
  remove() {
    const siblings = this.parent?.childNodes ?? [];
    if (siblings.includes(this)) siblings.splice(siblings.indexOf(this), 1);
  }
  get lastChild() {
    return this.childNodes.at(-1);
  }
  setAttribute(name, value) {
    this.attributes.set(name, String(value));
  }
  addEventListener(name, listener) {
    this.listeners[name] = listener;
  }
  get textContent() {
    return this.childNodes.map((node) => node.textContent).join("");
  }
  set textContent(text) {
    this.childNodes = [new Text(text)];
  }
  get innerHTML() {
    return this.childNodes.map((node) => node.outerHTML).join("");
  }
  set innerHTML(_) {
    throw new Error("markup must not be parsed");
  }
  get outerHTML() {
    const tag = this.tagName.toLowerCase();
    const attributes = [...this.attributes].map(([name, value]) => ` ${name}="${escape(value)}"`).join("");
    return `<${tag}${attributes}>${this.innerHTML}</${tag}>`;
  }
}
Text.prototype.remove = Element.prototype.remove;

const escape = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll('"', "&quot;");

globalThis.document = { createElement: (tag) => new Element(tag) };

/** An element of its own. */
export const root = () => new Element("div");
