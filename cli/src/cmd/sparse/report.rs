//! `llmrt sparse report`: how concentrated activations are, and what a token then reads.

use super::ffn::{self, Layer};
use super::inputs::{self, Counted, CountsArgs};
use crate::error::Result;
use crate::model::OpenModel;
use crate::output::{self, bytes};
use clap::Args;
use llmrt_host::load::OpenOptions;
use llmrt_sparse::Counts;
use serde_json::json;
use std::path::PathBuf;

/// Report which share of its neurons makes most of a model's activations, and the bytes that a token reads.
///
/// Bytes are predictions of what must be read, not measurements: of the feed-forward parts the gate, or without one up,
/// in full, of the rest what is active.
#[derive(Args, Debug)]
pub struct Report {
    /// Model.
    #[arg(value_name = "MODEL")]
    pub model: PathBuf,
    #[command(flatten)]
    pub counts: CountsArgs,
    /// JSON instead of tables.
    #[arg(long)]
    pub json: bool,
}

/// Shares of the activations whose neurons are counted.
const COVERED: [u32; 5] = [50, 80, 90, 95, 99];

impl Report {
    /// Prints a row for each layer, then the bytes.
    pub fn run(&self) -> Result<()> {
        let model = OpenModel::open(Some(&self.model), &OpenOptions::default())?;
        let layers = ffn::layers(&model)?;
        let n_ff: Vec<_> = layers.iter().map(Layer::n_ff).collect();
        let counted = inputs::counts(&self.counts, &model, &n_ff)?;
        let cost = Bytes::new(&model, &layers, &counted);
        match self.json {
            true => Ok(output::json(&as_json(&counted, &cost))?),
            false => print(&counted, &cost),
        }
    }
}

/// Share of zeros among the activations of a layer.
fn zeros(counts: &Counts, n_tokens: u64) -> f64 {
    let n = counts.as_slice().len().max(1) as f64 * n_tokens as f64;
    (1.0 - counts.total() / n).max(0.0)
}

/// The share of neurons, the most active first, that makes each of these shares of the activations.
fn coverage(counts: &Counts) -> [f64; COVERED.len()] {
    let (sorted, total) = (counts.sorted(), counts.total());
    COVERED.map(|percent| {
        let required = total * f64::from(percent) / 100.0;
        let mut sum = 0.0;
        let missing = sorted.iter().take_while(|n| {
            let is_missing = sum < required;
            sum += **n;
            is_missing
        });
        missing.count() as f64 / sorted.len().max(1) as f64
    })
}

/// What a token reads, in bytes.
struct Bytes {
    dense: f64,
    exact: f64,
    /// Where the file has predictors: if they were right about every neuron.
    predicted: Option<f64>,
}

impl Bytes {
    fn new(model: &OpenModel, layers: &[Layer<'_>], counted: &Counted) -> Bytes {
        let tensors = &model.files.model.tensors;
        let is_tied = !tensors.iter().any(|t| t.name == "output.weight");
        let is_read = |name: &str| {
            let is_looked_up =
                name.starts_with("position_embd") || (name.starts_with("token_embd") && !is_tied);
            !is_looked_up && !name.contains(".fc1.") && !name.contains(".fc2.")
        };
        let dense = tensors.iter().filter(|t| is_read(&t.name)).map(|t| t.nbytes as f64).sum();
        let (mut exact, mut predicted) = (dense, dense);
        for (layer, counts) in layers.iter().zip(&counted.layers) {
            let active = 1.0 - zeros(counts, counted.n_tokens());
            let (ffn, down) = (layer.bytes() as f64, layer.down.nbytes as f64);
            let down_read = down * share_of_down(layer, active);
            let first = layer.gate.unwrap_or(layer.up).nbytes as f64;
            exact -= ffn - (first + (ffn - first - down) * active + down_read);
            predicted -= ffn - (layer.predictor_bytes as f64 + (ffn - down) * active + down_read);
        }
        let has_predictors = layers.iter().all(|layer| layer.predictor_bytes > 0);
        Bytes { dense, exact, predicted: has_predictors.then_some(predicted) }
    }
}

/// Which share of down is read when this share of neurons is active. Of blocks along the neurons, scales are read for
/// every 32 neurons of which one is active.
fn share_of_down(layer: &Layer<'_>, active: f64) -> f64 {
    if layer.is_transposed {
        return active;
    }
    let (bytes, elems) = (layer.down.nbytes as f64, layer.down.n_elements() as f64);
    let scales = 1.0 - (bytes * 8.0 / elems).floor() * elems / 8.0 / bytes;
    scales * (1.0 - (1.0 - active).powi(32)) + (1.0 - scales) * active
}

fn print(counted: &Counted, cost: &Bytes) -> Result<()> {
    let percent = |share: f64| format!("{:.1} %", 100.0 * share);
    let row = |(i, counts): (usize, &Counts)| {
        let start =
            [i.to_string(), counts.as_slice().len().to_string(), percent(zeros(counts, counted.n_tokens()))];
        start.into_iter().chain(coverage(counts).map(percent)).collect::<Vec<_>>()
    };
    let rows: Vec<_> = counted.layers.iter().enumerate().map(row).collect();
    let titles = COVERED.map(|percent| format!(">FOR {percent} %"));
    let titles: Vec<_> =
        [">LAYER", ">NEURONS", ">ZEROS"].into_iter().chain(titles.iter().map(String::as_str)).collect();
    output::table(&titles, &rows)?;

    let mode = |name: &str, n: f64| vec![name.to_string(), bytes(n as u64), format!("{:.2}", cost.dense / n)];
    let mut rows = vec![mode("dense", cost.dense), mode("exact", cost.exact)];
    rows.extend(cost.predicted.map(|n| mode("predict", n)));
    let least = if counted.recorded_tokens.is_some() { "" } else { "at least " };
    output::print(format_args!("\ncounted over {least}{} tokens\n\n", counted.n_tokens()))?;
    Ok(output::table(&["MODE", ">BYTES A TOKEN", ">GAIN"], &rows)?)
}

fn as_json(counted: &Counted, cost: &Bytes) -> serde_json::Value {
    let layer = |counts: &Counts| {
        json!({
            "neurons": counts.as_slice().len(),
            "zeros": zeros(counts, counted.n_tokens()),
            "share_of_neurons": coverage(counts),
        })
    };
    json!({
        "tokens": counted.n_tokens(),
        "covered_percent": COVERED,
        "layers": counted.layers.iter().map(layer).collect::<Vec<_>>(),
        "bytes_per_token": { "dense": cost.dense, "exact": cost.exact, "predict": cost.predicted },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coverage_counts_neurons_from_the_most_active() {
        let counts = Counts::new(vec![1.0, 0.0, 8.0, 0.0, 1.0]).expect("counts");
        assert_eq!(coverage(&counts), [0.2, 0.2, 0.4, 0.6, 0.6]);
        let zeros = Counts::new(vec![0.0; 4]).expect("counts");
        assert_eq!(coverage(&zeros), [0.0; 5]);
    }

    #[test]
    fn zeros_are_what_was_not_active_in_any_token() {
        let counts = Counts::new(vec![10.0, 0.0, 5.0, 1.0]).expect("counts");
        assert!((zeros(&counts, 10) - 0.6).abs() < 1e-12);
        assert_eq!(zeros(&counts, 1), 0.0, "counts of more tokens than that");
    }
}
