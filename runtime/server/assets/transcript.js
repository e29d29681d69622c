// The conversation on the page: articles of a chat, or one text of a story.

import { byId, copyButton, el } from "./dom.js";
import { MarkdownView } from "./markdown.js";

/** How close to the end, in pixels, counts as reading along. */
const NEAR_END = 80;

export class Transcript {
  #views = [];
  #frame = 0;

  /** `actions`: `edit(index)`, `regenerate()`. */
  constructor(actions) {
    this.actions = actions;
    this.root = byId("transcript");
  }

  /** Shows all turns. */
  show(conversation, isBusy = false) {
    this.conversation = conversation;
    this.root.setAttribute("aria-busy", String(isBusy));
    this.root.classList.toggle("story", conversation.mode === "complete");
    this.#views = [];
    const turns = conversation.turns.map((turn, i) => this.#turn(turn, i, isBusy));
    this.root.replaceChildren(...(turns.length ? turns : [hint(conversation.mode)]));
    this.root.scrollTop = this.root.scrollHeight;
  }

  /** Shows what was added to the last turn, once a frame. */
  grow() {
    this.#frame ||= requestAnimationFrame(() => {
      this.#frame = 0;
      const isNearEnd = this.root.scrollHeight - this.root.scrollTop - this.root.clientHeight < NEAR_END;
      this.#views.at(-1)?.();
      if (isNearEnd) this.root.scrollTop = this.root.scrollHeight;
    });
  }

  #turn(turn, i, isBusy) {
    const isLast = i === this.conversation.turns.length - 1;
    const isStory = this.conversation.mode === "complete";
    const body = isStory
      ? this.#plain(turn)
      : turn.role === "user"
        ? el("div", { class: "body plain" }, turn.text)
        : this.#answer(turn);
    if (isStory || turn.role === "user") this.#views.push(() => isStory && (body.textContent = turn.text));
    const notes = [
      turn.problem ? el("p", { class: "problem", role: "alert" }, turn.problem) : null,
      turn.note ? el("p", { class: "note" }, turn.note) : null,
    ];
    const buttons = isBusy || (isStory && !isLast) ? [] : this.#buttons(turn, i, isLast, isStory);
    const foot = el("footer", {}, ...notes, el("div", { class: "buttons" }, ...buttons));
    const label = turn.role === "user" ? "You" : "Answer";
    const heading = isStory ? null : el("h2", {}, label);
    const showsFoot = !isStory || isLast || turn.problem;
    return el("article", { class: `turn ${turn.role}`, "aria-label": label }, heading, body, showsFoot ? foot : null);
  }

  #plain(turn) {
    return el("span", { class: "body plain" }, turn.text);
  }

  /** An answer in markdown, its reasoning folded. */
  #answer(turn) {
    const reasoning = el("div", { class: "plain" });
    const details = el("details", { hidden: true }, el("summary", {}, "Reasoning"), reasoning);
    const body = el("div", { class: "body" });
    const markdown = new MarkdownView(body);
    const update = () => {
      details.hidden = !turn.reasoning;
      reasoning.textContent = turn.reasoning ?? "";
      markdown.update(turn.text);
    };
    update();
    this.#views.push(update);
    return el("div", {}, details, body);
  }

  #buttons(turn, i, isLast, isStory) {
    const button = (label, onclick) => el("button", { type: "button", class: "small", onclick }, label);
    const text = () => (isStory ? this.conversation.turns.map((t) => t.text).join("") : turn.text);
    const copy = turn.text ? [copyButton(text)] : [];
    const edit = isStory ? button("Edit text", () => this.actions.edit(0)) : button("Edit", () => this.actions.edit(i));
    const again = turn.role === "assistant" ? "Regenerate" : isStory ? "Continue" : "Answer";
    return [
      ...copy,
      ...(turn.role === "user" || isStory ? [edit] : []),
      ...(isLast ? [button(again, () => this.actions.regenerate())] : []),
    ];
  }
}

function hint(mode) {
  const text =
    mode === "chat"
      ? "Send a message to begin."
      : "Write the beginning of a text: the model continues it. Without one it begins by itself.";
  return el("p", { class: "hint" }, text);
}
