//! `llmrt sparse predictor`: networks that predict which neurons fire, trained on what a text makes them do.

use super::ffn;
use super::{inputs, profile};
use crate::args::{Global, ModelArgs};
use crate::error::{Error, Result};
use crate::interrupt;
use crate::model::{self, OpenModel};
use crate::output::{self, n_things, note};
use clap::Args;
use llmrt_abi::DType;
use llmrt_engine::TokenId;
use llmrt_gguf::TensorInfo;
use llmrt_graph::quant;
use llmrt_sparse::stats::SparseFile;
use llmrt_sparse::train::{self, Options, Samples, Trained};
use std::path::PathBuf;

/// Train predictors of the neurons that fire, over a text, for --sparse predict.
///
/// The results go to MODEL.sparse.gguf; `sparse convert MODEL OUT.powerinfer.gguf` makes a model of them that predicts. The last
/// tenth of the text is held out: the threshold and the table come from it.
#[derive(Args, Debug)]
pub struct Predictor {
    /// Model whose activation makes zeros: ReLU, ReLU² or dReLU.
    #[arg(value_name = "MODEL")]
    pub model: PathBuf,
    /// Text that the model is run on.
    #[arg(short, long, value_name = "TEXT")]
    pub file: PathBuf,
    /// Most tokens of it; inputs and values of all of them are held in memory.
    #[arg(long, value_name = "N", default_value_t = 4096)]
    #[arg(value_parser = clap::value_parser!(u32).range(LEAST_TOKENS as i64..))]
    pub tokens: u32,
    /// Numbers between the two matrices of a predictor [default: a quarter of a hidden state].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub rank: Option<u32>,
    /// Passes over the text.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    pub epochs: u32,
    /// Seed of the first weights.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Share of what neurons give, in magnitude, that those have which are picked.
    #[arg(long, value_name = "SHARE", default_value_t = 0.99, value_parser = inputs::share)]
    pub recall: f64,
    /// Overwrite MODEL.sparse.gguf, even if it is of another model.
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    pub loading: ModelArgs,
}

/// With fewer tokens, the tenth that is held out has less than two.
const LEAST_TOKENS: usize = 20;

/// Tokens of a window.
const WINDOW: usize = 256;

/// What a layer's FFN read and what its neurons gave, token by token.
#[derive(Default)]
struct Recorded {
    x: Vec<f32>,
    h: Vec<f32>,
}

impl Predictor {
    /// Trains and writes the file.
    pub fn run(&self, global: &Global) -> Result<()> {
        let model = OpenModel::open(Some(&self.model), &model::open_options(&self.loading))?;
        let path = inputs::stats_path(&model);
        let (mut file, _) = inputs::stats_to_write(&model, self.force)?;
        let dims: Vec<_> = ffn::layers(&model)?.iter().map(|layer| (layer.up.ne[0], layer.n_ff())).collect();
        let name = model.name.clone();
        let mut tokens = profile::tokens(&model, &self.file)?;
        tokens.truncate(self.tokens as usize);
        if tokens.len() < LEAST_TOKENS {
            let found = n_things(tokens.len(), "token");
            let problem = format!(
                "has {found}, expected at least {LEAST_TOKENS}: give a longer text, of some thousand tokens"
            );
            return Err(Error::usage(format_args!("{}: {problem}", self.file.display())));
        }

        let recorded = self.record(global, model, &tokens, dims.len())?;
        let zeros = recorded.iter().flat_map(|layer| &layer.h).filter(|h| **h == 0.0).count();
        if zeros == 0 {
            let problem = "its activation makes no zeros, so that nothing can be predicted: a model with ReLU, ReLU² or \
                           dReLU has some, `--sparse magnitude` suits others";
            return Err(Error::file(&self.model, problem));
        }
        let n_trained = tokens.len() - tokens.len() / 10;
        let trained = self.train(&recorded, &dims, n_trained)?;
        let tested = Tested::new(&recorded, &dims, n_trained, &trained, self.recall);

        let bytes = set_predictors(&mut file, &dims, &trained);
        file.predictor_threshold = Some(tested.threshold);
        file.predictor_recall = Some(tested.recall as f32);
        inputs::save(&path, &file, &bytes)?;
        output::table(&[">LAYER", ">FIRE", ">PICKED", ">RECALL"], &tested.rows)?;
        output::print(format_args!("\n"))?;
        output::table(&[">THRESHOLD", ">PICKED", ">RECALL"], &tested.by_threshold)?;
        note(format_args!("{}: predictors of {name}, threshold {}", path.display(), tested.threshold));
        Ok(())
    }

    /// Runs the text.
    fn record(
        &self,
        global: &Global,
        model: OpenModel,
        tokens: &[TokenId],
        n_layers: usize,
    ) -> Result<Vec<Recorded>> {
        let mut session = profile::session(global, model, &self.loading, WINDOW.min(tokens.len()))?;
        let mut recorded: Vec<Recorded> = (0..n_layers).map(|_| Recorded::default()).collect();
        for (i, window) in tokens.chunks(WINDOW).enumerate() {
            let is_residual = |name: &str| layer_of_residual(name).is_some();
            session.core.runner_mut().product_inputs(window, &is_residual, &mut |name, _, rows| {
                if let Some(layer) = layer_of_residual(name).and_then(|layer| recorded.get_mut(layer)) {
                    // The last of a window is what the FFN reads.
                    layer.x.truncate(i * WINDOW * (rows.len() / window.len()));
                    layer.x.extend_from_slice(rows);
                } else if let Some(layer) = layer_of_neurons(name).and_then(|layer| recorded.get_mut(layer)) {
                    layer.h.extend_from_slice(rows);
                }
            })?;
            if interrupt::is_requested() {
                return Err(Error::interrupted());
            }
        }
        Ok(recorded)
    }

    /// Trains the predictors of all layers, several at a time, on the first tokens.
    fn train(&self, recorded: &[Recorded], dims: &[(u64, usize)], n: usize) -> Result<Vec<Trained>> {
        let train = |(i, recorded): (usize, &Recorded)| {
            let (n_embd, n_ff) = (dims[i].0 as usize, dims[i].1);
            let [x, h] =
                [(&recorded.x, n_embd), (&recorded.h, n_ff)].map(|(all, width)| all.get(..n * width));
            let (Some(x), Some(h)) = (x, h) else {
                let problem = format!("layer {i}: its FFN reads no residual stream that can be recorded");
                return Err(Error::file(&self.model, problem));
            };
            let rank = self.rank.map_or(n_embd.div_ceil(4), |rank| rank as usize);
            let options =
                Options { rank, epochs: self.epochs as usize, seed: self.seed.wrapping_add(i as u64) };
            let samples = Samples { x, h, n_embd, n_ff };
            train::train(&samples, &options).map_err(|e| Error::file(&self.model, e))
        };
        let n_threads = std::thread::available_parallelism().map_or(1, usize::from);
        let mut trained = Vec::with_capacity(recorded.len());
        let layers: Vec<_> = recorded.iter().enumerate().collect();
        for some in layers.chunks(n_threads) {
            let done: Result<Vec<Trained>> = std::thread::scope(|scope| {
                let threads: Vec<_> = some.iter().map(|layer| scope.spawn(|| train(*layer))).collect();
                let joined = threads.into_iter().map(|thread| thread.join());
                joined
                    .map(|done| done.unwrap_or_else(|_| Err(Error::file(&self.model, "training panicked"))))
                    .collect()
            });
            trained.extend(done?);
            if interrupt::is_requested() {
                return Err(Error::interrupted());
            }
        }
        Ok(trained)
    }
}

/// How good the predictors are on what was held out.
struct Tested {
    threshold: f32,
    /// By magnitude, of all layers alike.
    recall: f64,
    /// By layer: share of neurons that fire, share that is picked, recall by magnitude.
    rows: Vec<Vec<String>>,
    /// By threshold: share that is picked, recall, of all layers alike.
    by_threshold: Vec<Vec<String>>,
}

/// Recalls whose thresholds are shown beside the one that was requested.
const RECALLS: [f64; 6] = [0.9, 0.95, 0.98, 0.99, 0.995, 0.999];

impl Tested {
    fn new(
        recorded: &[Recorded],
        dims: &[(u64, usize)],
        n_trained: usize,
        trained: &[Trained],
        recall: f64,
    ) -> Tested {
        let layers = recorded.iter().zip(dims).zip(trained);
        let scored: Vec<Scored> = layers
            .map(|((recorded, &(n_embd, n_ff)), trained)| {
                let x = recorded.x.chunks_exact(n_embd as usize).skip(n_trained);
                let scores = x.flat_map(|x| trained.scores(x));
                let h = recorded.h[n_trained * n_ff..].iter().map(|h| f64::from(h.abs()));
                scores.zip(h).collect()
            })
            .collect();
        // Layers count alike, however large their values are.
        let weighed = |layer: &Scored| {
            let sum: f64 = layer.iter().map(|(_, h)| h).sum();
            layer.iter().map(|(score, h)| (*score, h / sum.max(f64::MIN_POSITIVE))).collect::<Vec<_>>()
        };
        let mut all: Vec<_> = scored.iter().flat_map(weighed).collect();
        let mut threshold_for = |recall| train::threshold(&mut all, recall);
        let threshold = threshold_for(recall);
        let mut thresholds: Vec<f32> =
            RECALLS.map(&mut threshold_for).into_iter().chain([threshold]).collect();
        thresholds.sort_unstable_by(|a, b| b.total_cmp(a));
        thresholds.dedup();

        let mean =
            |of: &dyn Fn(&Scored) -> f64| scored.iter().map(of).sum::<f64>() / scored.len().max(1) as f64;
        let row = |(i, layer): (usize, &Scored)| {
            let fire = layer.iter().filter(|(_, h)| *h > 0.0).count() as f64 / layer.len().max(1) as f64;
            vec![
                i.to_string(),
                percent(fire, 1),
                percent(picked(layer, threshold), 1),
                percent(recall_of(layer, threshold), 2),
            ]
        };
        let row_of_threshold = |&t: &f32| {
            vec![
                t.to_string(),
                percent(mean(&|layer| picked(layer, t)), 1),
                percent(mean(&|layer| recall_of(layer, t)), 2),
            ]
        };
        Tested {
            threshold,
            recall: mean(&|layer| recall_of(layer, threshold)),
            rows: scored.iter().enumerate().map(row).collect(),
            by_threshold: thresholds.iter().map(row_of_threshold).collect(),
        }
    }
}

/// A layer's scores, and the magnitudes of what these neurons gave.
type Scored = Vec<(f32, f64)>;

/// The share of neurons whose score is not below the threshold.
fn picked(layer: &Scored, threshold: f32) -> f64 {
    layer.iter().filter(|(score, _)| *score >= threshold).count() as f64 / layer.len().max(1) as f64
}

/// The share that these have of all magnitudes.
fn recall_of(layer: &Scored, threshold: f32) -> f64 {
    let picked = layer.iter().filter(|(score, _)| *score >= threshold);
    // From 0 on, since the sum of nothing is -0.
    let found = picked.fold(0.0, |sum, (_, h)| sum + h);
    found / layer.iter().map(|(_, h)| h).sum::<f64>().max(f64::MIN_POSITIVE)
}

fn percent(share: f64, decimals: usize) -> String {
    format!("{:.decimals$} %", 100.0 * share)
}

/// Puts predictors into the file, in F16; their bytes.
fn set_predictors(file: &mut SparseFile, dims: &[(u64, usize)], trained: &[Trained]) -> Vec<u8> {
    let mut bytes = Vec::new();
    file.predictors.clear();
    for (i, (trained, &(n_embd, n_ff))) in trained.iter().zip(dims).enumerate() {
        let rank = trained.fc1.len() as u64 / n_embd;
        for (name, ne, weights) in
            [("fc1", [n_embd, rank], &trained.fc1), ("fc2", [rank, n_ff as u64], &trained.fc2)]
        {
            let (offset, data) = (bytes.len() as u64, quant::quantise(DType::F16, weights));
            file.predictors.push(TensorInfo {
                name: format!("blk.{i}.{name}.weight"),
                dtype: DType::F16,
                ne: [ne[0], ne[1], 1, 1],
                n_dims: 2,
                file: 0,
                offset,
                nbytes: data.len() as u64,
            });
            bytes.extend(data);
        }
    }
    bytes
}

/// The layer whose FFN reads the residual stream of this name: that after attention, or where there is none (attention and FFN
/// side by side) that which the layer begins with.
fn layer_of_residual(name: &str) -> Option<usize> {
    let layer = |prefix| name.strip_prefix(prefix)?.parse::<usize>().ok();
    match name {
        "inp_embd" | "inp_scaled" => Some(0),
        _ => layer("ffn_inp-").or_else(|| Some(layer("l_out-")? + 1)),
    }
}

/// The layer whose neurons are multiplied with this matrix.
fn layer_of_neurons(weight: &str) -> Option<usize> {
    let (layer, part) = profile::matrix_of_layer(weight)?;
    matches!(part, "ffn_down" | "ffn_down_t").then_some(layer)
}
