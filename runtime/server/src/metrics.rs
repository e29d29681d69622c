//! GET /metrics: Prometheus text with vLLM's names.

use crate::server::App;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use llmrt::engine::work::DividedWork;
use llmrt::engine::{EngineStats, Work};
use llmrt::host::sched::report::Report;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Upper bounds in seconds: vLLM's for the time to the first token, which span those between tokens and of whole requests.
const BOUNDS: [f64; 18] =
    [0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 30.0, 60.0];

/// Times of a server's requests, over all models.
#[derive(Default)]
pub struct Metrics {
    pub first_token: Histogram,
    pub inter_token: Histogram,
    pub end_to_end: Histogram,
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

/// The route.
pub async fn metrics(State(app): State<Arc<App>>) -> Response {
    let entries = app.registry.entries();
    let loaded = entries.iter().filter_map(|entry| {
        let model = entry.loaded()?;
        let (stats, work) = (model.engine.stats(), model.engine.work());
        Some(Loaded { name: entry.name(), stats, work, last: model.placement.report().unwrap_or_default() })
    });
    let loaded: Vec<Loaded<'_>> = loaded.collect();
    let text = write(&app.metrics, &loaded);
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}

/// A loaded model.
#[derive(Default)]
struct Loaded<'a> {
    name: &'a str,
    stats: EngineStats,
    /// What its devices have executed.
    work: Work,
    /// Where its last step ran; of no devices before the first step.
    last: Report,
}

/// Name, type and help of what each loaded model has, and its value.
type Row = (&'static str, &'static str, &'static str, fn(&EngineStats) -> f64);

const ROWS: [Row; 13] = [
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
    ("vllm:prompt_tokens_total", "counter", "Prompt tokens of ended requests.", |s| s.n_prompt_tokens as f64),
    ("vllm:generation_tokens_total", "counter", "Generated tokens.", |s| s.n_generated_tokens as f64),
    (
        "vllm:spec_decode_num_drafts_total",
        "counter",
        "Steps of a text with guesses of its next tokens.",
        |s| s.drafts.n_drafts as f64,
    ),
    ("vllm:spec_decode_num_draft_tokens_total", "counter", "Guesses of next tokens.", |s| {
        s.drafts.n_draft_tokens as f64
    }),
    ("vllm:spec_decode_num_accepted_tokens_total", "counter", "Of these, those that texts took.", |s| {
        s.drafts.n_accepted_tokens as f64
    }),
];

fn usage(stats: &EngineStats) -> f64 {
    stats.n_blocks_used as f64 / stats.n_blocks.max(1) as f64
}

fn write(metrics: &Metrics, models: &[Loaded<'_>]) -> String {
    let mut out = String::new();
    for (name, kind, help, value) in ROWS {
        let rows = models.iter().map(|model| (label(model.name), value(&model.stats)));
        family(&mut out, name, kind, help, rows);
    }
    let ends = models.iter().flat_map(|Loaded { name, stats, .. }| {
        let of = [("stop", stats.n_stopped), ("length", stats.n_at_length), ("abort", stats.n_aborted)];
        let of = of.into_iter().chain([("error", stats.n_failed)]);
        of.map(|(reason, n)| (format!("{},finished_reason=\"{reason}\"", label(name)), n as f64))
    });
    family(&mut out, "vllm:request_success_total", "counter", "Ended requests, by why.", ends);
    write_work(models, &mut out);
    write_neurons(models, &mut out);
    let time = [
        ("vllm:time_to_first_token_seconds", "Time to the first token.", &metrics.first_token),
        ("vllm:time_per_output_token_seconds", "Time between tokens of a text.", &metrics.inter_token),
        ("vllm:inter_token_latency_seconds", "The same by its newer name.", &metrics.inter_token),
        ("vllm:e2e_request_latency_seconds", "Time of whole requests.", &metrics.end_to_end),
    ];
    time.iter().for_each(|(name, help, histogram)| histogram.write(name, help, &mut out));
    out
}

/// Where steps were executed.
fn write_work(models: &[Loaded<'_>], out: &mut String) {
    let of = |value: fn(&Work) -> u64| models.iter().map(move |m| (label(m.name), value(&m.work) as f64));
    let help = "Steps that devices executed.";
    family(out, "llmrt:steps_total", "counter", help, of(|work| work.n_steps));
    let help = "Steps whose program was made for them.";
    family(out, "llmrt:plan_misses_total", "counter", help, of(|work| work.n_program_misses));
    let help = "Parts of graphs that ran on one device without another in between.";
    family(out, "llmrt:splits_total", "counter", help, of(|work| work.n_splits));
    let help = "Bytes copied between devices.";
    family(out, "llmrt:copied_bytes_total", "counter", help, of(|work| work.copied_bytes));
    let nodes = models.iter().flat_map(|Loaded { name, work, .. }| {
        work.devices.iter().map(|d| (of_device(name, &d.device), d.n_nodes as f64))
    });
    family(out, "llmrt:nodes_total", "counter", "Executed nodes.", nodes);
    let fallbacks = models.iter().flat_map(|Loaded { name, work, .. }| {
        work.devices.iter().map(|d| {
            let here = work.fallbacks.iter().filter(|f| f.device == d.device);
            (of_device(name, &d.device), here.map(|f| f.n_nodes).sum::<u64>() as f64)
        })
    });
    let help = "Nodes that ran here and not on the first device.";
    family(out, "llmrt:fallback_nodes_total", "counter", help, fallbacks);
}

/// Which devices have the neurons of models whose neurons are divided, and what became of those that change places.
fn write_neurons(models: &[Loaded<'_>], out: &mut String) {
    let divided = || models.iter().filter(|model| model.last.neurons.iter().any(|(n, _)| *n > 0));
    let of_devices = |value: fn(&(u64, u64)) -> u64| {
        divided().flat_map(move |Loaded { name, last, .. }| {
            let rows = last.devices.iter().zip(&last.neurons);
            rows.map(move |(device, neurons)| (of_device(name, device), value(neurons) as f64))
        })
    };
    let help = "Neurons of sparse models that a device has.";
    family(out, "llmrt:neurons", "gauge", help, of_devices(|(n, _)| *n));
    let help = "Bytes of the weights of neurons that a device has.";
    family(out, "llmrt:neuron_bytes", "gauge", help, of_devices(|(_, bytes)| *bytes));
    let of = |value: fn(&DividedWork) -> u64| {
        let adapted = models.iter().filter(|model| model.work.divided.n_tokens > 0);
        adapted.map(move |model| (label(model.name), value(&model.work.divided) as f64))
    };
    let help = "Active neurons of counted tokens, wherever they are, with --sparse-adapt.";
    family(out, "llmrt:active_neurons_total", "counter", help, of(|divided| divided.active[1]));
    let help = "Active neurons of counted tokens that a device other than the CPU had, with --sparse-adapt.";
    family(out, "llmrt:active_neurons_on_devices_total", "counter", help, of(|divided| divided.active[0]));
    let help = "Neurons that a device other than the CPU got in place of others, with --sparse-adapt.";
    family(out, "llmrt:moved_neurons_total", "counter", help, of(|divided| divided.n_moved));
    let help = "Bytes of weights that were written on all devices to move neurons, with --sparse-adapt.";
    family(out, "llmrt:moved_neuron_bytes_total", "counter", help, of(|divided| divided.moved_bytes));
}

/// A metric with its rows: labels and values.
fn family(
    out: &mut String,
    name: &str,
    kind: &str,
    help: &str,
    rows: impl IntoIterator<Item = (String, f64)>,
) {
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
    for (labels, value) in rows {
        let _ = writeln!(out, "{name}{{{labels}}} {value}");
    }
}

fn label(model: &str) -> String {
    format!("model_name=\"{}\"", escaped(model))
}

fn of_device(model: &str, device: &str) -> String {
    format!("{},device=\"{}\"", label(model), escaped(device))
}

/// A label's value.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use llmrt::engine::work::DeviceWork;

    fn counted() -> EngineStats {
        EngineStats { n_prompt_tokens: 7, n_aborted: 1, ..EngineStats::default() }
    }

    #[test]
    fn the_text_has_vllms_names_and_cumulative_buckets() {
        let metrics = Metrics::default();
        metrics.first_token.record(Duration::from_millis(30));
        metrics.first_token.record(Duration::from_secs(100));
        let stats = EngineStats { n_running: 2, n_blocks: 4, n_blocks_used: 1, ..counted() };
        let devices = vec![DeviceWork { device: "cpu".into(), n_nodes: 9 }];
        let work = Work { n_steps: 3, devices, ..Work::default() };
        let text = write(&metrics, &[Loaded { name: "a\"b", stats, work, ..Loaded::default() }]);
        for line in [
            "vllm:num_requests_running{model_name=\"a\\\"b\"} 2",
            "vllm:kv_cache_usage_perc{model_name=\"a\\\"b\"} 0.25",
            "vllm:time_to_first_token_seconds_bucket{le=\"0.02\"} 0",
            "vllm:time_to_first_token_seconds_bucket{le=\"0.04\"} 1",
            "vllm:time_to_first_token_seconds_bucket{le=\"+Inf\"} 2",
            "vllm:time_to_first_token_seconds_sum 100.03",
            "vllm:prompt_tokens_total{model_name=\"a\\\"b\"} 7",
            "vllm:request_success_total{model_name=\"a\\\"b\",finished_reason=\"abort\"} 1",
            "llmrt:nodes_total{model_name=\"a\\\"b\",device=\"cpu\"} 9",
            "llmrt:fallback_nodes_total{model_name=\"a\\\"b\",device=\"cpu\"} 0",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
        }
        assert!(!text.contains("llmrt:neurons{"), "none are divided: {text}");
    }

    #[test]
    fn divided_neurons_are_counted_by_device_and_what_changes_places_by_model() {
        let last = Report {
            devices: vec!["card".into(), "cpu".into()],
            neurons: vec![(300, 4096), (724, 9000)],
            ..Report::default()
        };
        let divided = DividedWork { n_tokens: 2, active: [30, 50], n_moved: 7, moved_bytes: 640 };
        let work = Work { divided, ..Work::default() };
        let text = write(
            &Metrics::default(),
            &[
                Loaded { name: "m", work, last, ..Loaded::default() },
                Loaded { name: "n", ..Loaded::default() },
            ],
        );
        for line in [
            "llmrt:neurons{model_name=\"m\",device=\"card\"} 300",
            "llmrt:neurons{model_name=\"m\",device=\"cpu\"} 724",
            "llmrt:neuron_bytes{model_name=\"m\",device=\"card\"} 4096",
            "llmrt:active_neurons_total{model_name=\"m\"} 50",
            "llmrt:active_neurons_on_devices_total{model_name=\"m\"} 30",
            "llmrt:moved_neurons_total{model_name=\"m\"} 7",
            "llmrt:moved_neuron_bytes_total{model_name=\"m\"} 640",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
        }
        assert!(!text.contains("neurons_total{model_name=\"n\""), "{text}");
    }
}
