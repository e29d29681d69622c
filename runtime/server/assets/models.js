// The choice of a model: names from the server, which of them are loaded, which have a chat template.

import { byId, el } from "./dom.js";
import { load, save } from "./store.js";

export class Models {
  #loaded = new Set();

  /** `onChange()` is called when another model is selected. */
  constructor(api, onChange) {
    Object.assign(this, { api, names: [] });
    this.select = byId("model");
    this.select.addEventListener("change", () => {
      save("model", this.selected);
      onChange();
    });
  }

  get selected() {
    return this.select.disabled ? "" : this.select.value;
  }

  /** Reads the list; throws what the server refused. */
  async refresh() {
    let list;
    try {
      list = await this.api.json("v1/models");
    } catch (e) {
      this.#disable("No models");
      throw e;
    }
    this.names = (Array.isArray(list?.data) ? list.data : [])
      .map((model) => model?.id)
      .filter((id) => typeof id === "string");
    if (this.names.length === 0) return this.#disable("No models");
    const before = this.selected || load("model", "");
    this.select.replaceChildren(...this.names.map((name) => el("option", { value: name }, name)));
    this.select.value = this.names.includes(before) ? before : this.names[0];
    this.select.disabled = false;
    await this.refreshLoaded();
  }

  /** Marks the models that are not loaded, where the server lists those that are. */
  async refreshLoaded() {
    const running = await this.api.json("api/ps").catch(() => null);
    if (!Array.isArray(running?.models)) return (this.#loaded = null);
    this.#loaded = new Set(running.models.map((model) => untagged(String(model?.name))));
    for (const option of this.select.options) {
      option.textContent = option.value + (this.#isLoaded(option.value) ? "" : " (not loaded)");
    }
  }

  /** What to show until the first token. */
  async waitingText() {
    await this.refreshLoaded();
    return this.#isLoaded(this.selected) ? "Waiting for the first token…" : `Loading ${this.selected}…`;
  }

  /** Whether the selected model can chat; null if the server has no answer. */
  async hasTemplate() {
    const model = this.selected;
    if (!model) return null;
    const shown = await this.api.json("api/show", { model }).catch(() => null);
    if (typeof shown?.template !== "string") return null;
    if (shown.template !== "") return true;
    // A template that the server was started with is not in the file.
    const props = await this.api.json(`props?model=${encodeURIComponent(model)}`).catch(() => null);
    return props?.model_alias === model && Boolean(props.chat_template);
  }

  #isLoaded(name) {
    return this.#loaded === null || this.#loaded.has(untagged(name));
  }

  #disable(text) {
    this.select.replaceChildren(el("option", {}, text));
    this.select.disabled = true;
  }
}

const untagged = (name) => name.replace(/:latest$/, "");
