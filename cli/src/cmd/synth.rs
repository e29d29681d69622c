//! `llmrt synth`: a GGUF file in a known model's shape with random weights, to measure speed with.

mod numbers;
mod rare;
mod shape;
mod vocabulary;

pub use shape::Shape;

use crate::args::Global;
use crate::cmd::Command;
use crate::cmd::quantize::{self, Mix, Rule, TypeRequest};
use crate::cmd::sparse::{model_id, save};
use crate::error::{Error, Result};
use crate::model::OpenModel;
use crate::new_file::{self, NewFile};
use crate::output::note;
use crate::{interrupt, setup};
use clap::Args;
use llmrt_gguf::writer::{self, Tables, WriteError};
use llmrt_gguf::{Flavour, Metadata, TensorShape};
use llmrt_host::load::{ModelFiles, OpenOptions};
use llmrt_sparse::Counts;
use llmrt_sparse::stats::{SparseFile, path_beside};
use numbers::Numbers;
use rare::Rarity;
use std::path::{Path, PathBuf};

/// What counts of random neurons are over.
const N_TOKENS: u64 = 1_000_000;

/// Make a model file in a known model's shape with random weights, to measure speed with.
///
/// The same flags and seed give the same file, byte for byte; files of different types have the same numbers up to
/// rounding.
#[derive(Args, Debug)]
#[command(after_help = SYNTH_HELP)]
pub struct Synth {
    /// GGUF file to write; an existing one is not overwritten.
    #[arg(value_name = "OUT.gguf")]
    pub output: PathBuf,
    /// The model whose shape it gets: qwen2.5-0.5b, llama-3.2-1b, llama-3.1-8b, mixtral-8x7b, qwen3-30b-a3b, gemma-3-4b,
    /// gpt-oss-20b, mamba2-1.3b, rwkv7-1.5b, deepseek-v2-lite, lfm2-1.2b, relu-llama-3.2-1b,
    /// relu-llama-2-7b, bamboo-7b or opt-6.7b.
    #[arg(long, value_name = "MODEL")]
    pub like: Shape,
    /// Type of most matrices, as in `quantize`.
    #[arg(long = "type", value_name = "TYPE")]
    pub mix: Mix,
    /// Tensors whose name REGEX matches become TYPE (repeatable; the first that matches counts).
    #[arg(long = "tensor", value_name = "REGEX=TYPE")]
    pub rules: Vec<Rule>,
    /// All matrices in the same type: no better ones for those that matter more.
    #[arg(long)]
    pub pure: bool,
    /// Layers [default: the model's].
    #[arg(long, value_name = "N")]
    pub layers: Option<u64>,
    /// Share of the neurons that give zeros, in models with ReLU.
    #[arg(long, value_name = "SHARE", default_value_t = 0.9, value_parser = share)]
    pub zeros: f64,
    /// Share of the neurons that have four fifths of all that is not zero, in models with ReLU.
    #[arg(long, value_name = "SHARE", default_value_t = 0.26, value_parser = share)]
    pub hot: f64,
    /// As PowerInfer has models with ReLU: with predictors of the neurons that fire.
    #[arg(long)]
    pub predictors: bool,
    /// GGUF file to take the vocabulary from [default: one made by a rule, of the model's size].
    #[arg(long, value_name = "FILE")]
    pub vocab: Option<PathBuf>,
    /// Seed of the random numbers.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Overwrite the output.
    #[arg(long)]
    pub force: bool,
}

const SYNTH_HELP: &str = "\
Examples:
  llmrt synth --like llama-3.2-1b --type q4_k_m random-1b.gguf
  llmrt synth --like mixtral-8x7b --type q4_0 --layers 2 random-moe.gguf";

impl Command for Synth {
    const NAME: &'static str = "synth";

    fn run(&self, global: &Global) -> Result<()> {
        synth(global, self)
    }
}

/// A share of all, neither none nor all.
fn share(text: &str) -> std::result::Result<f64, String> {
    let found = text.trim().parse().ok().filter(|share| (0.01..=0.99).contains(share));
    found.ok_or_else(|| "expected a share of 0.01 to 0.99".to_string())
}

/// Writes the file; it appears under its name only when it is whole.
fn synth(global: &Global, args: &Synth) -> Result<()> {
    setup::check_threads(global.threads)?;
    if let Some(n) = args.layers.filter(|n| !(1..=shape::MAX_LAYERS).contains(n)) {
        return Err(Error::usage(format!("--layers {n}: expected 1 to {}", shape::MAX_LAYERS)));
    }
    let model = args.like.model(args.layers).map_err(Error::usage)?;
    let model = if args.predictors { model.with_predictors().map_err(Error::usage)? } else { model };
    let counts_path = path_beside(&args.output);
    for output in [&args.output, &counts_path] {
        new_file::check_output(output, args.force, args.vocab.iter().map(AsRef::as_ref))?;
    }

    let mut metadata = model.metadata.clone();
    let n_vocab = match &args.vocab {
        Some(path) => {
            let files = ModelFiles::open(path, &OpenOptions::default())?;
            copy_vocabulary(&files.model.metadata, &mut metadata).ok_or_else(|| {
                Error::file(path, "has no tokenizer.ggml.tokens: give a file with a vocabulary")
            })?
        }
        None => vocabulary::write(&mut metadata, model.n_vocab, &model.pre),
    };
    let parts = model.parts(n_vocab);
    let shapes: std::result::Result<Vec<_>, _> = parts.iter().map(|part| part.shape()).collect();
    let shapes = shapes.map_err(Error::usage)?;
    let request =
        TypeRequest { mix: args.mix, rules: &args.rules, output: None, embedding: None, pure: args.pure };
    let choices = quantize::choose(&request, &metadata, &shapes);
    let tables = Tables {
        flavour: if args.predictors { Flavour::PowerInfer } else { Flavour::Dense },
        metadata: quantize::metadata(&metadata, args.mix.file_type),
        tensors: shapes.into_iter().zip(choices).map(|(s, c)| TensorShape { dtype: c.dtype, ..s }).collect(),
        ..Tables::default()
    };

    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    let mut numbers = Numbers::new(
        args.seed,
        global.threads.unwrap_or_else(cores),
        Rarity { zeros: args.zeros, hot: args.hot },
    );
    let mut file = NewFile::create(&args.output)?;
    let written =
        writer::write(file.out(), &tables, |i, out| numbers.write(&parts[i], &tables.tensors[i], out));
    let n = written.map_err(|e| match e {
        _ if interrupt::is_requested() => Error::interrupted(),
        WriteError::Invalid(e) => Error::usage(e),
        WriteError::Io(e) => Error::unwritable(&args.output, &e),
        other => Error::output(&args.output, other),
    })?;
    file.finish()?;
    note(format_args!("{}: {}", args.output.display(), quantize::summary(&tables.tensors, n)));
    if numbers.frequencies().is_empty() {
        Ok(())
    } else {
        write_counts(&args.output, &counts_path, numbers.frequencies())
    }
}

/// How often neurons fire, as counts over many tokens, beside the model.
fn write_counts(model: &Path, path: &Path, frequencies: &[Vec<f64>]) -> Result<()> {
    let of_layer =
        |layer: &Vec<f64>| Counts::new(layer.iter().map(|p| (p * N_TOKENS as f64).round()).collect());
    let counts: std::result::Result<Vec<_>, _> = frequencies.iter().map(of_layer).collect();
    let written = OpenModel::open(Some(model), &OpenOptions::default())?;
    let file = SparseFile {
        n_tokens: N_TOKENS,
        counts: counts.map_err(|e| Error::output(path, e))?,
        ..SparseFile::new(model_id(&written)?)
    };
    save(path, &file, &[])
}

/// Everything under `tokenizer.`; gives how many tokens there are.
fn copy_vocabulary(from: &Metadata, to: &mut Metadata) -> Option<u64> {
    for (key, value) in from.iter().filter(|(key, _)| key.starts_with("tokenizer.")) {
        to.set(key, value.clone());
    }
    Some(from.strings("tokenizer.ggml.tokens")?.len() as u64).filter(|&n| n > 0)
}
