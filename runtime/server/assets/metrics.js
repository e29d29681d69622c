// Prometheus text to samples, and the numbers of the engine in them. Names are vLLM's; any may be missing.

const LINE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})?[ \t]+(\S+)(?:[ \t]+-?\d+)?[ \t]*$/;
const LABEL = /([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"[ \t]*,?[ \t]*/y;

/** The samples of a text; lines that are none are skipped. */
export function parse(text) {
  const samples = [];
  for (const line of text.split(/\r?\n/)) {
    const [, name, labels, value] = (!line.startsWith("#") && LINE.exec(line)) || [];
    if (name && !Number.isNaN(number(value))) samples.push({ name, labels: parseLabels(labels), value: number(value) });
  }
  return samples;
}

function parseLabels(text = "") {
  const labels = new Map();
  LABEL.lastIndex = 0;
  for (let label; (label = LABEL.exec(text));) {
    labels.set(
      label[1],
      label[2].replace(/\\(.)/g, (_, c) => (c === "n" ? "\n" : c)),
    );
  }
  return labels;
}

function number(text) {
  const infinite = /^([+-]?)Inf$/.exec(text);
  return infinite ? (infinite[1] === "-" ? -Infinity : Infinity) : Number(text);
}

/** What the panel shows; null where the server has no such metric. Gauges are summed over models. */
export function engineNumbers(samples, model) {
  const values = (name) => samples.filter((s) => s.name === name);
  const sum = (...names) => {
    const found = names.map(values).find((rows) => rows.length > 0);
    return found ? found.reduce((total, s) => total + s.value, 0) : null;
  };
  const kv =
    [values("vllm:kv_cache_usage_perc"), values("vllm:gpu_cache_usage_perc")].find((rows) => rows.length > 0) ?? [];
  const ofModel = kv.find((s) => s.labels.get("model_name") === model);
  const queries = sum("vllm:prefix_cache_queries_total", "vllm:prefix_cache_queries");
  const hits = sum("vllm:prefix_cache_hits_total", "vllm:prefix_cache_hits");
  return {
    running: sum("vllm:num_requests_running"),
    waiting: sum("vllm:num_requests_waiting"),
    swapped: sum("vllm:num_requests_swapped"),
    preemptions: sum("vllm:num_preemptions_total", "vllm:num_preemptions"),
    kvUse: ofModel?.value ?? (kv.length ? Math.max(...kv.map((s) => s.value)) : null),
    prefixHits: queries && hits !== null ? hits / queries : null,
    generated: generated(sum),
  };
}

/** Tokens so far. A counter that grows only when requests end is less than the number of timed tokens. */
function generated(sum) {
  const counter = sum("vllm:generation_tokens_total", "vllm:generation_tokens");
  const later = sum("vllm:inter_token_latency_seconds_count", "vllm:time_per_output_token_seconds_count");
  const first = sum("vllm:time_to_first_token_seconds_count");
  const timed = later === null ? null : later + (first ?? 0);
  return counter === null && timed === null ? null : Math.max(counter ?? 0, timed ?? 0);
}

/** Metrics that only this server has, as rows of a table. */
export function ownRows(samples) {
  const own = samples.filter((s) => s.name.startsWith("llmrt:") && !/_(bucket|sum|count)$/.test(s.name));
  return own.map((s) => ({
    metric: s.name.slice("llmrt:".length).replace(/_total$/, ""),
    of: [...s.labels.values()].join(", "),
    value: s.value,
  }));
}

/** Tokens per second between readings of a counter. */
export class Rate {
  #last = null;

  /** The rate since the reading before, or null: none yet, or the server was restarted. */
  update(count, seconds) {
    const last = this.#last;
    this.#last = count === null ? null : { count, seconds };
    if (last === null || count === null || count < last.count || seconds <= last.seconds) return null;
    return (count - last.count) / (seconds - last.seconds);
  }
}
