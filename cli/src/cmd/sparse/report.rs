//! `llmrt sparse report`: how concentrated activations are, and what a token then reads.

use super::ffn::{self, Layer};
use super::inputs::{self, Counted, CountsArgs};
use crate::args::OpenArgs;
use crate::error::{Error, Result};
use crate::model::{self, OpenModel};
use crate::output::{self, bytes};
use clap::Args;
use llmrt_gguf::TensorInfo;
use llmrt_sparse::Counts;
use llmrt_sparse::stats::SparseFile;
use llmrt_sparse::thresholds::zeros_below;
use serde_json::json;
use std::path::PathBuf;

/// Report which share of its neurons makes most of a model's activations, and the bytes that a token reads in each mode of --sparse.
///
/// FOR 90 % is the share of a layer's neurons, the most active first, that have 90 % of its activations.
///
/// Bytes are predictions of what must be read, not measurements: with exact, of the feed-forward parts the gate, or without one up,
/// in full, of the rest what is active; with magnitude, of each matrix what is not below the thresholds of `sparse thresholds`.
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
    #[command(flatten)]
    pub open: OpenArgs,
}

/// Shares of the activations whose neurons are counted.
const COVERED: [u32; 5] = [50, 80, 90, 95, 99];

impl Report {
    /// Prints a row for each layer, then the bytes.
    pub fn run(&self) -> Result<()> {
        let model = OpenModel::open(Some(&self.model), &model::table_options(&self.open))?;
        // A folder of counts is instead of what is beside the model.
        let beside = match self.counts.activation {
            Some(_) => None,
            None => inputs::stats_beside(&model)?.map(|(file, _)| file),
        };
        let dense = read_bytes(&model);
        let magnitude = beside.as_ref().and_then(|file| magnitude_bytes(&model, file, dense));
        // Models whose neurons give no zeros have thresholds alone.
        let is_counted =
            self.counts.activation.is_some() || beside.as_ref().is_none_or(|file| !file.counts.is_empty());
        if !is_counted && magnitude.is_none() {
            let problem = "has no counts and no thresholds: `llmrt sparse profile MODEL -f TEXT` counts, and for models without zeros \
                           `llmrt sparse thresholds MODEL` comes next";
            return Err(Error::file(&inputs::stats_path(&model), problem));
        }
        let mut cost = Bytes { dense, exact: None, predicted: None, magnitude };
        let counted = match is_counted {
            false => None,
            true => {
                let layers = ffn::layers(&model)?;
                let n_ff: Vec<_> = layers.iter().map(Layer::n_ff).collect();
                let counted = match beside {
                    Some(_) => inputs::counted(&self.counts, &model, beside, &n_ff)?,
                    None => inputs::counts(&self.counts, &model, &n_ff)?,
                };
                cost.count(&layers, &counted);
                Some(counted)
            }
        };
        match self.json {
            true => Ok(output::json(&as_json(counted.as_ref(), &cost))?),
            false => print(counted.as_ref(), &cost),
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

/// What a token reads, in bytes, by mode; as far as it can be predicted.
struct Bytes {
    dense: f64,
    exact: Option<f64>,
    /// Where the file has predictors: if they were right about every neuron.
    predicted: Option<f64>,
    /// Where there are thresholds.
    magnitude: Option<f64>,
}

impl Bytes {
    /// Of the modes that leave out neurons.
    fn count(&mut self, layers: &[Layer<'_>], counted: &Counted) {
        let (mut exact, mut predicted) = (self.dense, self.dense);
        for (layer, counts) in layers.iter().zip(&counted.layers) {
            let active = 1.0 - zeros(counts, counted.n_tokens());
            let (ffn, down) = (layer.bytes() as f64, layer.down.nbytes as f64);
            let down_read = down * share_of_down(layer, active);
            let first = layer.gate.unwrap_or(layer.up).nbytes as f64;
            exact -= ffn - (first + (ffn - first - down) * active + down_read);
            predicted -= ffn - (layer.predictor_bytes as f64 + (ffn - down) * active + down_read);
        }
        self.exact = Some(exact);
        self.predicted = layers.iter().all(|layer| layer.predictor_bytes > 0).then_some(predicted);
    }
}

/// Bytes that a token reads where all is computed: of all weights, but of tables in which rows are looked up, and of predictors.
fn read_bytes(model: &OpenModel) -> f64 {
    let is_read =
        |name: &str| !ffn::is_looked_up(model, name) && !name.contains(".fc1.") && !name.contains(".fc2.");
    model.files.model.tensors.iter().filter(|t| is_read(&t.name)).map(|t| t.nbytes as f64).sum()
}

/// What a token reads of `dense` bytes with the thresholds beside the model; `None`, if there are none.
fn magnitude_bytes(model: &OpenModel, file: &SparseFile, dense: f64) -> Option<f64> {
    let skipped = |(name, threshold): &(String, f32)| {
        let (_, quantiles) = file.quantiles.iter().find(|(of, _)| of == name)?;
        let matrix = model.files.model.tensor(&format!("{name}.weight"))?;
        let read = share_of_columns(matrix, 1.0 - zeros_below(quantiles, *threshold));
        Some(matrix.nbytes as f64 * (1.0 - read))
    };
    let all = file.thresholds.iter().filter_map(skipped);
    (!file.thresholds.is_empty()).then(|| dense - all.sum::<f64>())
}

/// Which share of down is read when this share of neurons is active.
fn share_of_down(layer: &Layer<'_>, active: f64) -> f64 {
    if layer.is_transposed { active } else { share_of_columns(layer.down, active) }
}

/// Which share of a matrix is read when this share of its columns is active. Scales are read for every 32 columns of which one
/// is active.
fn share_of_columns(matrix: &TensorInfo, active: f64) -> f64 {
    let (bytes, elems) = (matrix.nbytes as f64, matrix.n_elements() as f64);
    let scales = 1.0 - (bytes * 8.0 / elems).floor() * elems / 8.0 / bytes;
    scales * (1.0 - (1.0 - active).powi(32)) + (1.0 - scales) * active
}

fn print(counted: Option<&Counted>, cost: &Bytes) -> Result<()> {
    if let Some(counted) = counted {
        print_layers(counted)?;
    }
    let mode = |name: &str, n: f64| vec![name.to_string(), bytes(n as u64), format!("{:.2}", cost.dense / n)];
    let modes = [("exact", cost.exact), ("predict", cost.predicted), ("magnitude", cost.magnitude)];
    let known = modes.into_iter().filter_map(|(name, n)| Some(mode(name, n?)));
    let rows: Vec<_> = [mode("dense", cost.dense)].into_iter().chain(known).collect();
    Ok(output::table(&["MODE", ">BYTES A TOKEN", ">GAIN"], &rows)?)
}

/// A row for each layer, and how many tokens were counted over.
fn print_layers(counted: &Counted) -> Result<()> {
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
    let least = if counted.recorded_tokens.is_some() { "" } else { "at least " };
    Ok(output::print(format_args!("\ncounted over {least}{} tokens\n\n", counted.n_tokens()))?)
}

fn as_json(counted: Option<&Counted>, cost: &Bytes) -> serde_json::Value {
    let layer = |counts: &Counts, n_tokens: u64| {
        json!({
            "neurons": counts.as_slice().len(),
            "zeros": zeros(counts, n_tokens),
            "share_of_neurons": coverage(counts),
        })
    };
    let layers = |counted: &Counted| -> Vec<_> {
        counted.layers.iter().map(|counts| layer(counts, counted.n_tokens())).collect()
    };
    json!({
        "tokens": counted.map(Counted::n_tokens),
        "covered_percent": COVERED,
        "layers": counted.map(layers).unwrap_or_default(),
        "bytes_per_token": {
            "dense": cost.dense,
            "exact": cost.exact,
            "predict": cost.predicted,
            "magnitude": cost.magnitude,
        },
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
