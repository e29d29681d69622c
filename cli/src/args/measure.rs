//! `eval` and `bench`: numbers from a model.

use super::{ContextArgs, ModelArgs};
use crate::values;
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// Write raw logits for given tokens.
///
/// Logits are little-endian f32, one row of n_vocab values per token. The model's tokenizer is not needed, so models
/// work whose tokenizer llmrt does not know.
#[derive(Args, Debug)]
#[command(after_long_help = EVAL_HELP)]
pub struct Eval {
    /// Model file.
    #[arg(short = 'm', long = "model", value_name = "FILE")]
    pub model: PathBuf,
    /// Token ids, separated by spaces or commas.
    #[arg(long, value_name = "IDS", required_unless_present = "tokens_file", conflicts_with = "tokens_file")]
    pub tokens: Option<String>,
    /// File with token ids.
    #[arg(long, value_name = "FILE")]
    pub tokens_file: Option<PathBuf>,
    /// Where the logits go [default: stdout shows the likeliest tokens instead].
    #[arg(long, value_name = "FILE")]
    pub logits_out: Option<PathBuf>,
    /// Which rows: every position, or the last.
    #[arg(long, value_enum, default_value_t, value_name = "WHICH")]
    pub logits: LogitsArg,
    /// Feed the tokens in chunks of these sizes, repeating the last: `1`, `5,16,3`.
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = values::whole)]
    #[arg(allow_negative_numbers = true)]
    pub chunks: Vec<usize>,
    /// Write the result of every op into this folder, one file of f32 values each, named by node.
    #[arg(long, value_name = "DIR")]
    pub per_op: Option<PathBuf>,
    #[command(flatten)]
    pub context: ContextArgs,
    #[command(flatten)]
    pub loading: ModelArgs,
}

#[derive(ValueEnum, Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LogitsArg {
    /// Every position.
    All,
    /// The last position.
    #[default]
    Last,
}

const EVAL_HELP: &str = "\
The output has no header: the first row comes first, n_vocab values of 4 bytes per row. It appears when all is
computed. --per-op also writes index.tsv: file, node, and dims (innermost first) of every result.

Example:
  llmrt eval -m model.gguf --tokens \"1 15043 3186\" --logits all --logits-out logits.f32";

/// Measure prompt and decode speed on random tokens.
#[derive(Args, Debug)]
#[command(after_long_help = BENCH_HELP)]
pub struct Bench {
    /// Model file [default: the embedded one].
    #[arg(short = 'm', long = "model", value_name = "FILE")]
    pub model: Option<PathBuf>,
    /// Tokens of the prompt; 0: no prompt test.
    #[arg(short = 'p', long, value_name = "N", default_value_t = 512, value_parser = values::whole)]
    #[arg(allow_negative_numbers = true)]
    pub n_prompt: usize,
    /// Tokens to decode; 0: no decode test.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 128, value_parser = values::whole)]
    #[arg(allow_negative_numbers = true)]
    pub n_gen: usize,
    /// Repetitions.
    #[arg(short = 'r', long, value_name = "N", default_value_t = 3, value_parser = values::whole)]
    #[arg(allow_negative_numbers = true)]
    pub repetitions: usize,
    /// One JSON object on stdout.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub context: ContextArgs,
    #[command(flatten)]
    pub loading: ModelArgs,
}

const BENCH_HELP: &str = "\
The random tokens are the same in every run. Decoding starts with a context of one token. The JSON has prompt_tok_s and
decode_tok_s (means), each with _sd (standard deviation); a test that was switched off is null.";
