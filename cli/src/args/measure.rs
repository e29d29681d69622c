//! `eval`, `perplexity` and `bench`: numbers from a model.

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
    /// Tokens in the context before a test begins.
    #[arg(short = 'd', long, value_name = "N", default_value_t = 0, value_parser = values::whole)]
    #[arg(allow_negative_numbers = true)]
    pub n_depth: usize,
    /// Sequences that decode together.
    #[arg(short = 's', long, value_name = "N", default_value_t = 1, value_parser = values::whole)]
    #[arg(allow_negative_numbers = true)]
    pub sequences: usize,
    /// Read back what samplers with this top-k need, where a device with memory of its own has the logits; 0: all logits.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = values::whole)]
    #[arg(allow_negative_numbers = true)]
    pub top_k: usize,
    /// Repetitions.
    #[arg(short = 'r', long, value_name = "N", default_value_t = 3, value_parser = values::whole)]
    #[arg(allow_negative_numbers = true)]
    pub repetitions: usize,
    /// Measure first what the machine can do at most on all threads: memory reads, and multiply-adds unless only reads
    /// are asked for; with -p 0 -n 0 nothing else.
    #[arg(long, value_enum, value_name = "WHICH", num_args = 0..=1, require_equals = true, default_missing_value = "all")]
    pub ceilings: Option<CeilingsArg>,
    /// Measure at once, without a run before.
    #[arg(long)]
    pub no_warmup: bool,
    /// One JSON object on stdout.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub context: ContextArgs,
    #[command(flatten)]
    pub loading: ModelArgs,
}

/// What `--ceilings` measures.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum CeilingsArg {
    /// Memory reads and multiply-adds.
    All,
    /// Memory reads.
    Reads,
}

const BENCH_HELP: &str = "\
The random tokens are the same in every run. Decoding starts with a context of one token at least. The JSON has
prompt_tok_s and decode_tok_s (means; of all sequences together), each with _sd (standard deviation); a test that was
switched off is null. It also has the least that steps must do: read_bytes_per_step, mul_adds_per_token (without
attention and the output matrix, which a prompt's last token alone meets), kv_bytes_per_token (read for each token of the
context), the ceilings, if asked for (reads at best and over a second), and logits_bytes: what the last step read back.";

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
Without -c a window has 512 tokens, or as many as the model was trained on if that is less. Lower is better: a perplexity
of 10 means that the model was as unsure as between 10 equal choices. The JSON has perplexity, perplexity_error, windows,
predictions and, with --kl, base_perplexity, mean_kld, mean_kld_error, median_kld, kld_99, max_kld, same_top (a share),
mean_dp and rms_dp (change of the right token's probability).

Examples:
  llmrt perplexity model-q4_k_m.gguf -f text.txt
  llmrt perplexity model-q4_k_m.gguf -f text.txt --kl model-f16.gguf --chunks 20";
