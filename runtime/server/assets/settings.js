// Sampling settings and the API key. Fields left empty are not sent: the server's default holds.

import { byId, el } from "./dom.js";
import { load, save } from "./store.js";

/** Name in the request, label, attributes of the input. */
const NUMBERS = [
  ["temperature", "Temperature", { min: 0, max: 5, step: 0.05, placeholder: "1" }],
  ["top_p", "Top p", { min: 0, max: 1, step: 0.01, placeholder: "1" }],
  ["top_k", "Top k (−1: all)", { min: -1, step: 1, placeholder: "-1" }],
  ["min_p", "Min p", { min: 0, max: 1, step: 0.01, placeholder: "0" }],
  ["repetition_penalty", "Repetition penalty", { min: 0.05, max: 5, step: 0.05, placeholder: "1" }],
  ["max_tokens", "Max tokens", { min: 1, step: 1, placeholder: "no limit" }],
  ["seed", "Seed", { min: 0, step: 1, placeholder: "from the clock" }],
];
const DEFAULTS = { system: "", max_tokens: 512 };

/** The numbers of the settings that are set and in range, by the names of the request. */
export function samplingFields(values) {
  const fields = {};
  for (const [name, , { min = -Infinity, max = Infinity, step }] of NUMBERS) {
    const value = values[name];
    const isNumber = typeof value === "number" && value >= min && value <= max;
    if (isNumber && (step < 1 || Number.isSafeInteger(value))) fields[name] = value;
  }
  return fields;
}

/** The panel and the values in it. */
export class Settings {
  #inputs = new Map();

  constructor(onKey) {
    const stored = load("settings", {});
    this.values = { ...DEFAULTS, ...(stored && typeof stored === "object" ? stored : {}) };
    if (typeof this.values.system !== "string") this.values.system = "";
    this.#build(onKey);
    this.#show();
  }

  get system() {
    return this.values.system.trim();
  }

  get sampling() {
    return samplingFields(this.values);
  }

  /** Kept for this tab only. */
  get key() {
    return load("key", "", "sessionStorage");
  }

  focusKey() {
    this.keyInput.focus();
  }

  #build(onKey) {
    this.systemInput = el("textarea", {
      rows: "4",
      placeholder: "None",
      oninput: () => this.#read("system", this.systemInput.value),
    });
    const fields = NUMBERS.map(([name, label, attributes]) => {
      const input = el("input", { type: "number", inputmode: "decimal", ...attributes });
      input.addEventListener("input", () => this.#read(name, input.value === "" ? null : input.valueAsNumber));
      this.#inputs.set(name, input);
      return el("label", {}, label, input);
    });
    this.keyInput = el("input", { type: "password", autocomplete: "off", spellcheck: "false", placeholder: "None" });
    this.keyInput.value = this.key;
    this.keyInput.addEventListener("change", () => {
      save("key", this.keyInput.value.trim(), "sessionStorage");
      onKey();
    });
    byId("fields").append(
      el("label", { class: "wide" }, "System prompt", this.systemInput),
      ...fields,
      el("label", { class: "wide" }, "API key, kept until this tab is closed", this.keyInput),
      el("button", { type: "button", onclick: () => this.#reset() }, "Reset settings"),
    );
  }

  #read(name, value) {
    this.values[name] = value;
    save("settings", this.values);
  }

  #reset() {
    this.values = { ...DEFAULTS };
    save("settings", this.values);
    this.#show();
  }

  #show() {
    this.systemInput.value = this.values.system;
    for (const [name, input] of this.#inputs) input.value = this.values[name] ?? "";
  }
}
