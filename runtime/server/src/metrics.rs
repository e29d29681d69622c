//! GET /metrics: Prometheus text with vLLM's names.

use crate::server::App;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use llmrt::engine::{EngineStats, RequestOutput};
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Upper bounds in seconds: vLLM's for the time to the first token, which span those between tokens and of whole requests.
const BOUNDS: [f64; 18] =
    [0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 30.0, 60.0];

/// Counters of a server, over all models.
#[derive(Default)]
pub struct Metrics {
    pub first_token: Histogram,
    pub inter_token: Histogram,
    pub end_to_end: Histogram,
    prompt_tokens: AtomicU64,
    generation_tokens: AtomicU64,
    cached_tokens: AtomicU64,
}

/// How often a time fell between two bounds.
#[derive(Default)]
pub struct Histogram {
    counts: [AtomicU64; BOUNDS.len() + 1],
    micros: AtomicU64,
}

impl Histogram {
    pub fn record(&self, time: Duration) {
        let seconds = time.as_secs_f64();
        let bucket = BOUNDS.iter().position(|bound| seconds <= *bound).unwrap_or(BOUNDS.len());
        self.counts[bucket].fetch_add(1, Relaxed);
        self.micros.fetch_add(time.as_micros() as u64, Relaxed);
    }

    fn write(&self, name: &str, help: &str, out: &mut String) {
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} histogram");
        let mut n = 0;
        for (count, bound) in self.counts.iter().zip(BOUNDS.iter().map(f64::to_string).chain(["+Inf".into()]))
        {
            n += count.load(Relaxed);
            let _ = writeln!(out, "{name}_bucket{{le=\"{bound}\"}} {n}");
        }
        let sum = self.micros.load(Relaxed) as f64 / 1e6;
        let _ = writeln!(out, "{name}_sum {sum}\n{name}_count {n}");
    }
}

impl Metrics {
    /// A request that ended.
    pub fn finished(&self, output: &RequestOutput) {
        self.prompt_tokens.fetch_add(output.usage.n_prompt as u64, Relaxed);
        self.cached_tokens.fetch_add(output.usage.n_cached as u64, Relaxed);
        self.generation_tokens.fetch_add(output.usage.n_generated as u64, Relaxed);
    }
}

/// The route.
pub async fn metrics(State(app): State<Arc<App>>) -> Response {
    let entries = app.registry.entries();
    let loaded: Vec<_> =
        entries.iter().filter_map(|e| Some((e.name(), e.loaded()?.engine.stats()))).collect();
    let text = write(&app.metrics, &loaded);
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}

/// Name, type and help of what each loaded model has, and its value.
type Row = (&'static str, &'static str, &'static str, fn(&EngineStats) -> f64);

const ROWS: [Row; 8] = [
    ("vllm:num_requests_running", "gauge", "Requests that have blocks on the device.", |s| {
        s.n_running as f64
    }),
    ("vllm:num_requests_waiting", "gauge", "Requests that wait for blocks.", |s| s.n_waiting as f64),
    ("vllm:num_requests_swapped", "gauge", "Requests whose blocks are in host memory.", |s| {
        s.n_swapped as f64
    }),
    ("vllm:kv_cache_usage_perc", "gauge", "Share of the KV cache in use, 0 to 1.", usage),
    ("vllm:gpu_cache_usage_perc", "gauge", "The same by its older name.", usage),
    ("vllm:num_preemptions_total", "counter", "Times a request lost its blocks.", |s| s.n_preemptions as f64),
    ("vllm:prefix_cache_queries_total", "counter", "Prompt tokens of ended requests.", |s| {
        s.n_prompt_tokens as f64
    }),
    ("vllm:prefix_cache_hits_total", "counter", "Of these, those that the prefix cache had.", |s| {
        s.n_cached_tokens as f64
    }),
];

fn usage(stats: &EngineStats) -> f64 {
    stats.n_blocks_used as f64 / stats.n_blocks.max(1) as f64
}

fn write(metrics: &Metrics, models: &[(&str, EngineStats)]) -> String {
    let mut out = String::new();
    for (name, kind, help, value) in ROWS {
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (model, stats) in models {
            let _ = writeln!(out, "{name}{{model_name=\"{}\"}} {}", escaped(model), value(stats));
        }
    }
    let counters = [
        ("vllm:prompt_tokens_total", "Prompt tokens.", &metrics.prompt_tokens),
        ("vllm:generation_tokens_total", "Generated tokens.", &metrics.generation_tokens),
        ("llmrt:prompt_tokens_cached_total", "Prompt tokens of the prefix cache.", &metrics.cached_tokens),
    ];
    for (name, help, value) in counters {
        let value = value.load(Relaxed);
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} counter\n{name} {value}");
    }
    let time = [
        ("vllm:time_to_first_token_seconds", "Time to the first token.", &metrics.first_token),
        ("vllm:time_per_output_token_seconds", "Time between tokens of a text.", &metrics.inter_token),
        ("vllm:e2e_request_latency_seconds", "Time of whole requests.", &metrics.end_to_end),
    ];
    time.iter().for_each(|(name, help, histogram)| histogram.write(name, help, &mut out));
    out
}

/// A label's value.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_has_vllms_names_and_cumulative_buckets() {
        let metrics = Metrics::default();
        metrics.first_token.record(Duration::from_millis(30));
        metrics.first_token.record(Duration::from_secs(100));
        let stats = EngineStats { n_running: 2, n_blocks: 4, n_blocks_used: 1, ..Default::default() };
        let text = write(&metrics, &[("a\"b", stats)]);
        for line in [
            "vllm:num_requests_running{model_name=\"a\\\"b\"} 2",
            "vllm:kv_cache_usage_perc{model_name=\"a\\\"b\"} 0.25",
            "vllm:time_to_first_token_seconds_bucket{le=\"0.02\"} 0",
            "vllm:time_to_first_token_seconds_bucket{le=\"0.04\"} 1",
            "vllm:time_to_first_token_seconds_bucket{le=\"+Inf\"} 2",
            "vllm:time_to_first_token_seconds_sum 100.03",
            "vllm:prompt_tokens_total 0",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
        }
    }
}
