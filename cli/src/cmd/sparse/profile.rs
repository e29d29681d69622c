//! `llmrt sparse profile`: how often neurons fire and how large inputs of matrices are, over a text.

use super::inputs;
use crate::args::{Global, ModelArgs};
use crate::error::{Error, Result};
use crate::interrupt::UNTIL_INTERRUPTED;
use crate::model::{self, OpenModel};
use crate::output::{n_things, note};
use crate::session::Session;
use crate::setup::Setup;
use crate::{interrupt, text};
use clap::Args;
use llmrt_engine::{EngineOptions, TokenId};
use llmrt_models::{SparseMode, SparseOptions, takes_threshold};
use llmrt_sparse::Counts;
use llmrt_sparse::magnitudes::Magnitudes;
use llmrt_sparse::stats::SparseFile;
use llmrt_tokenizer::EncodeOptions;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Count over a text how often each neuron fires, and measure how large the inputs of each matrix are.
///
/// The results go to MODEL.sparse.gguf, beside what is there of this model already. `sparse report` and `sparse solve` take
/// the counts, `sparse thresholds` the quantiles.
#[derive(Args, Debug)]
pub struct Profile {
    /// Model.
    #[arg(value_name = "MODEL")]
    pub model: PathBuf,
    /// Text that the model is run on.
    #[arg(short, long, value_name = "TEXT")]
    pub file: PathBuf,
    /// Tokens of a window; each begins with an empty context.
    #[arg(short = 'c', long = "ctx", value_name = "N", default_value_t = 256)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub ctx: u32,
    /// Most windows [default: all of the text].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub chunks: Option<u32>,
    /// Overwrite MODEL.sparse.gguf, even if it is of another model.
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    pub loading: ModelArgs,
}

/// Intervals between quantiles.
const N_QUANTILES: usize = 100;

/// The least share of zeros of a model whose activation makes some: others come from rounding.
const LEAST_ZEROS: f64 = 0.01;

impl Profile {
    /// Runs the text and writes the file.
    pub fn run(&self, global: &Global) -> Result<()> {
        let model = OpenModel::open(Some(&self.model), &model::open_options(&self.loading))?;
        let path = inputs::stats_path(&model);
        let (mut file, bytes) = inputs::stats_to_write(&model, self.force)?;
        let tokens = tokens(&model, &self.file)?;
        let n_ctx = self.ctx as usize;
        let mut session = session(global, model, &self.loading, n_ctx)?;

        let mut measured = Measured::default();
        let windows = tokens.chunks(n_ctx).take(self.chunks.map_or(usize::MAX, |n| n as usize));
        for window in windows {
            let visit = &mut |weight: &str, n: usize, rows: &[f32]| measured.add(weight, n, rows);
            session.core.runner_mut().product_inputs(window, &|_| false, visit)?;
            measured.n_tokens += window.len() as u64;
            if interrupt::is_requested() {
                return Err(Error::interrupted());
            }
        }

        let (before, had_splits) = (file.n_tokens, !file.splits.is_empty());
        file.splits.clear();
        file.n_tokens = measured.n_tokens;
        file.counts = measured.counts().map_err(|e| Error::file(&path, e))?;
        file.quantiles = measured.quantiles();
        inputs::save(&path, &file, &bytes)?;
        note_replaced(&path, before, had_splits, &file);
        let zeros = match file.counts.is_empty() {
            true => "no neuron gives exact zeros".to_string(),
            false => format!("{:.1} % of the neurons' values are zeros", 100.0 * measured.zeros()),
        };
        note(format_args!(
            "{}: {}, inputs of {} matrices, {zeros}",
            path.display(),
            n_things(measured.n_tokens as usize, "token"),
            file.quantiles.len()
        ));
        Ok(())
    }
}

/// What became of earlier results: measurements over `before` tokens, and splits.
fn note_replaced(path: &Path, before: u64, had_splits: bool, file: &SparseFile) {
    let path = path.display();
    if before > file.n_tokens {
        let before = n_things(before as usize, "token");
        note(format_args!("{path}: what was measured over {before} is replaced by this, over fewer"));
    }
    if had_splits {
        let remedy = "`llmrt sparse solve --measure` makes others";
        note(format_args!("{path}: splits by earlier counts are removed: {remedy}"));
    }
    if !file.thresholds.is_empty() {
        let remedy = "`llmrt sparse thresholds` chooses others";
        note(format_args!("{path}: thresholds by earlier measurements are kept: {remedy}"));
    }
}

/// A model that computes all of its neurons, for windows of this many tokens.
pub fn session(global: &Global, model: OpenModel, loading: &ModelArgs, n_ctx: usize) -> Result<Session> {
    let setup = Setup::new(global)?;
    let placing = setup.placing();
    let options = EngineOptions {
        n_ctx,
        n_batch: n_ctx,
        max_prompt_logits: n_ctx,
        strict: placing.strict,
        split: placing.split,
        tensors: placing.tensors,
        sparse: SparseOptions { mode: SparseMode::Off, ..SparseOptions::default() },
        ..EngineOptions::default()
    };
    Session::load(&setup, model, loading, options, None)
}

/// The tokens of a text, which must have some.
pub fn tokens(model: &OpenModel, file: &Path) -> Result<Vec<TokenId>> {
    let text = text::of_file(file)?;
    // A token that begins every text would make one of nothing.
    if text.trim().is_empty() {
        let problem = "there is no text in it: give one like those that the model is for";
        return Err(Error::usage(format!("{}: {problem}", file.display())));
    }
    let options = EncodeOptions { add_special: true, parse_special: false };
    Ok(model.tokenizer()?.encode_within(&text, options, UNTIL_INTERRUPTED)?)
}

/// What was found so far.
#[derive(Default)]
struct Measured {
    n_tokens: u64,
    magnitudes: BTreeMap<String, Magnitudes>,
    /// By layer, in how many tokens each neuron was active.
    active: BTreeMap<usize, Vec<f64>>,
}

impl Measured {
    /// Counts inputs of a matrix, `n` numbers for each token.
    fn add(&mut self, weight: &str, n: usize, rows: &[f32]) {
        let Some((layer, part)) = matrix_of_layer(weight) else { return };
        if ["ffn_down", "ffn_down_t"].contains(&part) {
            let active = self.active.entry(layer).or_insert_with(|| vec![0.0; n]);
            for row in rows.chunks_exact(n) {
                active.iter_mut().zip(row).for_each(|(active, h)| *active += f64::from(u8::from(*h != 0.0)));
            }
        }
        self.magnitudes.entry(format!("blk.{layer}.{part}")).or_default().add(rows);
    }

    /// The share of zeros among the neurons' values.
    fn zeros(&self) -> f64 {
        let n: usize = self.active.values().map(Vec::len).sum();
        let active: f64 = self.active.values().flatten().sum();
        1.0 - active / (n as f64 * self.n_tokens as f64).max(1.0)
    }

    /// Counts by layer; none where a layer has no such neurons, or the activation makes no zeros.
    fn counts(&self) -> std::result::Result<Vec<Counts>, llmrt_sparse::Error> {
        let is_whole = self.active.keys().copied().eq(0..self.active.len());
        match is_whole && self.zeros() >= LEAST_ZEROS {
            true => self.active.values().map(|counts| Counts::new(counts.clone())).collect(),
            false => Ok(Vec::new()),
        }
    }

    fn quantiles(&self) -> Vec<(String, Vec<f32>)> {
        let all = self.magnitudes.iter();
        all.map(|(name, magnitudes)| (name.clone(), magnitudes.quantiles(N_QUANTILES))).collect()
    }
}

/// Layer and name of a layer's matrix: of `blk.3.ffn_up.weight` 3 and `ffn_up`.
pub fn matrix_of_layer(weight: &str) -> Option<(usize, &str)> {
    let (layer, part) = weight.strip_prefix("blk.")?.strip_suffix(".weight")?.split_once('.')?;
    (takes_threshold(part) || part == "ffn_down_t").then_some(())?;
    Some((layer.parse().ok()?, part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neurons_count_where_they_are_not_zero_and_matrices_of_layers_alone_are_measured() {
        let mut measured = Measured { n_tokens: 2, ..Measured::default() };
        measured.add("blk.0.ffn_down.weight", 3, &[0.0, 1.0, 0.0, 0.0, -2.0, 3.0]);
        measured.add("blk.0.ffn_gate_inp.weight", 3, &[1.0; 6]);
        measured.add("output.weight", 3, &[1.0; 6]);
        assert_eq!(measured.counts().unwrap()[0].as_slice(), [0.0, 2.0, 1.0]);
        assert_eq!(measured.zeros(), 0.5);
        assert_eq!(measured.quantiles().len(), 1);
        measured.add("blk.2.ffn_down.weight", 3, &[0.0; 6]);
        assert!(measured.counts().unwrap().is_empty(), "layer 1 has none");
    }
}
