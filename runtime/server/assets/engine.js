// The live view of the engine: polled while it can be seen, and only then.

import { byId, el, svg } from "./dom.js";
import { Rate, engineNumbers, ownRows, parse } from "./metrics.js";

const INTERVAL_MS = 1000;
const N_RATES = 60;
const GAUGES = [
  ["running", "Running", whole],
  ["waiting", "Waiting", whole],
  ["swapped", "Swapped", whole],
  ["rate", "Tokens/s", (x) => x.toFixed(1)],
  ["kvUse", "KV cache", percent],
  ["prefixHits", "Prefix hits", percent],
  ["preemptions", "Preemptions", whole],
];

/** The panel; `model` returns the selected model's name. */
export class EnginePanel {
  #rate = new Rate();
  #rates = [];
  #timer = null;
  /** Number of the current polling: an answer to an older one starts no timer. */
  #run = 0;
  #cells = {};
  #own = "";

  constructor(api, model) {
    Object.assign(this, { api, model, isOpen: false });
    for (const [name, label] of GAUGES) {
      this.#cells[name] = el("dd", {}, "–");
      byId("gauges").append(el("div", {}, el("dt", {}, label), this.#cells[name]));
    }
    this.properties = el("div");
    this.counters = el("div");
    byId("placement").append(this.properties, this.counters);
    document.addEventListener("visibilitychange", () => this.#restart());
  }

  show(isOpen) {
    this.isOpen = isOpen;
    this.#restart();
    this.refreshPlacement();
  }

  /** Reads the placement again: it changes with the model, not each second. */
  async refreshPlacement() {
    if (!this.isOpen) return;
    const name = this.model();
    const path = name ? `props?model=${encodeURIComponent(name)}` : "props";
    const props = await this.api.json(path).catch(() => null);
    this.properties.replaceChildren(...(props ? placement(props) : []));
  }

  #restart() {
    clearTimeout(this.#timer);
    const run = ++this.#run;
    if (!this.isOpen || document.hidden) return;
    this.#rate.update(null, 0);
    this.#poll(run);
  }

  async #poll(run) {
    try {
      const samples = parse(await this.api.text("metrics", AbortSignal.timeout(5 * INTERVAL_MS)));
      if (run !== this.#run) return;
      this.#update(samples);
      this.#problem("");
    } catch (e) {
      this.#problem(`No metrics: ${e.message}`);
    }
    if (run === this.#run) this.#timer = setTimeout(() => this.#poll(run), INTERVAL_MS);
  }

  #update(samples) {
    const numbers = engineNumbers(samples, this.model());
    numbers.rate = this.#rate.update(numbers.generated, performance.now() / 1000);
    for (const [name, , format] of GAUGES) {
      this.#cells[name].textContent = numbers[name] === null ? "–" : format(numbers[name]);
    }
    byId("kv").value = numbers.kvUse ?? 0;
    if (numbers.rate !== null) this.#rates = [...this.#rates, numbers.rate].slice(-N_RATES);
    byId("spark").replaceChildren(sparkline(this.#rates));
    const own = ownRows(samples);
    // Unchanged tables keep their nodes, so that their text can be selected.
    if (JSON.stringify(own) !== this.#own) {
      this.#own = JSON.stringify(own);
      this.counters.replaceChildren(...table("Counters", own));
    }
  }

  #problem(text) {
    byId("engine-problem").textContent = text;
    byId("engine-problem").hidden = text === "";
  }
}

function sparkline(rates) {
  const top = Math.max(1, ...rates);
  const point = (rate, i) => `${(N_RATES - rates.length + i).toFixed(0)},${(30 - (28 * rate) / top).toFixed(1)}`;
  const label = `at most ${top.toFixed(1)} tokens per second`;
  return svg(
    "svg",
    { viewBox: `0 0 ${N_RATES - 1} 31`, preserveAspectRatio: "none", role: "img", "aria-label": label },
    svg("polyline", { points: rates.map(point).join(" ") }),
  );
}

/** Placement, devices and fallbacks, in whatever of these fields the server has. */
function placement(props) {
  const placed = { ...props, ...(props.placement ?? {}) };
  const facts = [
    ["model", props.model_alias],
    ["context", props.default_generation_settings?.n_ctx],
    ["build", props.build_info],
    ["splits", placed.splits?.length],
    ["copies per step", placed.n_copies],
    ["copied per step", typeof placed.copied_bytes === "number" ? bytes(placed.copied_bytes) : undefined],
  ];
  const rows = facts.filter(([, value]) => value !== undefined && value !== null && typeof value !== "object");
  return [
    el("dl", { class: "facts" }, ...rows.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, String(value))])),
    ...table("Devices", placed.devices),
    ...table("Fallbacks", placed.fallbacks),
  ];
}

/** A table of objects, or of texts; nothing if there are none. */
function table(caption, rows) {
  if (!Array.isArray(rows) || rows.length === 0) return [];
  const objects = rows.slice(0, 100).map((row) => (row && typeof row === "object" ? row : { name: row }));
  const columns = [...new Set(objects.flatMap(Object.keys))].slice(0, 6);
  const head = columns.map((name) => el("th", { scope: "col" }, name.replace(/^n_|_bytes$/g, "").replaceAll("_", " ")));
  const body = objects.map((row) => el("tr", {}, ...columns.map((name) => el("td", {}, cell(name, row[name])))));
  return [
    el(
      "div",
      { class: "scroll", tabindex: "0" },
      el("table", {}, el("caption", {}, caption), el("thead", {}, el("tr", {}, ...head)), el("tbody", {}, ...body)),
    ),
  ];
}

function cell(name, value) {
  if (value === null || value === undefined) return "–";
  if (typeof value === "number") return name.endsWith("_bytes") ? bytes(value) : whole(value);
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

function whole(x) {
  return x.toLocaleString("en", { maximumFractionDigits: 2 });
}

function percent(x) {
  return `${(100 * x).toFixed(1)} %`;
}

function bytes(n) {
  const power = Math.min(4, Math.floor(Math.log2(Math.max(1, n)) / 10));
  return `${(n / 1024 ** power).toFixed(power ? 1 : 0)} ${["B", "KiB", "MiB", "GiB", "TiB"][power]}`;
}
