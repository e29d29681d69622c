//! The flags of `perplexity`.

use crate::args::{ContextArgs, ModelArgs};
use crate::values;
use clap::Args;
use std::path::PathBuf;

/// Measure how well a model predicts a text, and how far it is from another one.
///
/// The text is cut into windows of the context's length. Each window is read from an empty cache, with BOS in the place
/// of its first token if the vocabulary adds one, and the tokens of its second half are what is predicted. That is
/// llama.cpp's convention, so the numbers can be compared.
#[derive(Args, Debug)]
#[command(after_help = PERPLEXITY_HELP)]
pub struct Perplexity {
    /// Model file [default: the embedded model].
    #[arg(value_name = "MODEL")]
    pub model: Option<PathBuf>,
    /// Model file.
    #[arg(short = 'm', long = "model", value_name = "FILE", conflicts_with = "model")]
    pub model_file: Option<PathBuf>,
    /// File with the text; `-`: stdin.
    #[arg(short = 'f', long = "file", value_name = "TEXT")]
    pub file: PathBuf,
    /// Compare with this model: Kullback-Leibler divergence of the predictions from its predictions.
    #[arg(long, value_name = "BASE")]
    pub kl: Option<PathBuf>,
    /// Windows to read [default: all].
    #[arg(long, value_name = "N", value_parser = values::whole, allow_negative_numbers = true)]
    pub chunks: Option<usize>,
    /// One JSON object on stdout.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub context: ContextArgs,
    #[command(flatten)]
    pub loading: ModelArgs,
}

const PERPLEXITY_HELP: &str = "\
Without -c a window has 512 tokens, or as many as the model was trained on if that is less. Lower is better: a \
perplexity of 10 means that the model was as uncertain as among 10 equally likely tokens. The JSON has perplexity, \
perplexity_error, windows, predictions and, with --kl, base_perplexity, mean_kld, mean_kld_error, median_kld, \
kld_99, max_kld, same_top (a share), mean_dp and rms_dp (change of the right token's probability).

Examples:
  llmrt perplexity model-q4_k_m.gguf -f text.txt
  llmrt perplexity model-q4_k_m.gguf -f text.txt --kl model-f16.gguf --chunks 20";
