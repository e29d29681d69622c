// Sends, streams, stops: what happens between the composer and the transcript.

import { Conversation, delta, shortened, statistics } from "./conversation.js";
import { byId } from "./dom.js";
import { Transcript } from "./transcript.js";

export class Chat {
  #abort = null;
  /** Index of the turn whose text is in the composer. */
  #editing = null;

  /** `models`: selected name and load states; `onRefused(error)` is called with what the server refused. */
  constructor({ api, settings, models, onRefused, onAnswered }) {
    Object.assign(this, { api, settings, models, onRefused, onAnswered });
    this.input = byId("input");
    this.transcript = new Transcript({ edit: (i) => this.edit(i), regenerate: () => this.regenerate() });
    this.conversations = { chat: Conversation.stored("chat"), complete: Conversation.stored("complete") };
    byId("composer").addEventListener("submit", (event) => {
      event.preventDefault();
      this.send();
    });
    byId("stop").addEventListener("click", () => this.stop());
    this.input.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.send();
    });
    this.setMode("chat");
  }

  get isBusy() {
    return this.#abort !== null;
  }

  setMode(mode) {
    this.stop();
    this.#editing = null;
    this.mode = mode;
    this.conversation = this.conversations[mode];
    const isChat = mode === "chat";
    this.input.placeholder = isChat ? "Message" : "Once upon a time";
    byId("input-label").textContent = isChat ? "Message" : "Text to continue";
    this.#show();
  }

  send() {
    if (this.isBusy) return;
    const isChat = this.mode === "chat";
    const text = isChat ? this.input.value.trim() : this.input.value;
    if (isChat && text === "") return;
    if (this.#editing !== null) this.conversation.turns.length = this.#editing;
    this.#editing = null;
    this.input.value = "";
    if (text !== "") this.conversation.pushUser(text);
    this.#answer();
  }

  /** Answers the last message again. */
  regenerate() {
    if (this.isBusy) return;
    this.#editing = null;
    if (this.conversation.last?.role === "assistant") this.conversation.turns.pop();
    this.input.focus();
    this.#answer();
  }

  /** Puts a turn into the composer; sending it replaces it and what follows. */
  edit(index) {
    const turns = this.conversation.turns.slice(index);
    this.input.value = this.mode === "chat" ? turns[0].text : turns.map((turn) => turn.text).join("");
    this.#editing = index;
    this.#status("Send replaces this and what follows. Escape keeps it.");
    this.input.focus();
  }

  clear() {
    this.stop();
    this.#editing = null;
    this.conversation.turns.length = 0;
    this.conversation.store();
    this.#show();
    this.#status("Cleared.");
    this.input.focus();
  }

  /** Ends the answer or the editing; returns whether there was one. */
  stop() {
    if (this.isBusy) {
      this.#abort.abort();
      return true;
    }
    if (this.#editing === null) return false;
    this.#editing = null;
    this.input.value = "";
    this.#status("");
    return true;
  }

  async #answer() {
    const { conversation } = this;
    const request = conversation.request(this.models.selected, this.settings);
    const turn = { role: "assistant", text: "" };
    conversation.turns.push(turn);
    const abort = (this.#abort = new AbortController());
    this.#show();
    const times = { usage: null, nChunks: 0, started: performance.now(), first: null, last: null, finish: "" };
    this.#status("Waiting for the first token…");
    this.models.waitingText().then((text) => this.#abort === abort && times.nChunks === 0 && this.#status(text));
    let refusal = null;
    try {
      for await (const chunk of this.#stream(...request, times, abort.signal)) this.#grow(turn, delta(chunk), times);
    } catch (e) {
      if (abort.signal.aborted) turn.note = "stopped";
      else turn.problem = (refusal = e).message;
    }
    this.#abort = null;
    this.#end(conversation, turn, times);
    if (refusal) this.onRefused(refusal);
    this.onAnswered();
  }

  /** Notes how the answer ended, stores and shows it. */
  #end(conversation, turn, times) {
    const isEmpty = !turn.text && !turn.reasoning && !turn.problem && turn.note !== "stopped";
    if (isEmpty) turn.problem = "The answer is empty.";
    const counts = times.nChunks > 0 ? statistics(times) : null;
    const shortened = times.isShortened ? "without the oldest part: the context is full" : null;
    turn.note = [turn.note, counts, shortened].filter(Boolean).join(" · ") || undefined;
    const isStored = conversation.store();
    this.#show();
    const ended = turn.problem ? "The answer failed." : "Answer complete.";
    this.#status(isStored ? ended : `${ended} The browser has no room to keep the conversation.`);
    byId("announce").textContent = turn.text;
  }

  /** The chunks of an answer; what exceeds the context is sent again without its oldest part. */
  async *#stream(path, body, times, signal) {
    try {
      yield* this.api.stream(path, body, signal);
    } catch (e) {
      const shorter = e.code === "context_length_exceeded" ? shortened(body) : null;
      if (shorter === null) throw e;
      times.isShortened = true;
      yield* this.#stream(path, shorter, times, signal);
    }
  }

  #grow(turn, { text, reasoning, finish, usage }, times) {
    turn.text += text;
    if (reasoning) turn.reasoning = (turn.reasoning ?? "") + reasoning;
    times.usage = usage ?? times.usage;
    times.finish = finish || times.finish;
    if (!text && !reasoning) return;
    times.last = performance.now();
    times.first ??= times.last;
    times.nChunks += 1;
    if (times.nChunks === 1) this.#status("Answering…");
    this.transcript.grow();
  }

  #show() {
    this.transcript.show(this.conversation, this.isBusy);
    const label = this.mode === "chat" ? "Send" : "Continue";
    byId("send").textContent = label;
    // The button that has the focus is replaced by the other one.
    const hadFocus = [byId("send"), byId("stop")].includes(document.activeElement);
    byId("send").hidden = this.isBusy;
    byId("stop").hidden = !this.isBusy;
    if (hadFocus) (this.isBusy ? byId("stop") : byId("send")).focus();
  }

  #status(text) {
    byId("status").textContent = text;
  }
}
