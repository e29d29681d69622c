//! The flags of `bench`.

use crate::args::{ContextArgs, ModelArgs, RequestsArgs};
use crate::values;
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// Measure prompt and decode speed on random tokens.
#[derive(Args, Debug)]
#[command(after_long_help = BENCH_HELP)]
pub struct Bench {
    /// Model file [default: the embedded one].
    #[arg(value_name = "MODEL", conflicts_with = "model_file")]
    pub model: Option<PathBuf>,
    /// Model file.
    #[arg(short = 'm', long = "model", value_name = "FILE")]
    pub model_file: Option<PathBuf>,
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
    #[arg(short = 's', long, alias = "parallel", value_name = "N", default_value_t = 1, value_parser = values::whole)]
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
    /// Measure first the machine's roofline on all threads: memory reads, and multiply-adds unless only reads are
    /// requested; with -p 0 -n 0 nothing else.
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
    pub requests: RequestsArgs,
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
The random tokens are the same in every run. Decoding starts with a context of one token at least. The JSON has \
prompt_tok_s and decode_tok_s (means; of all sequences together), each with _sd (standard deviation); a test that \
was switched off is null. It also has the least that steps must do: read_bytes_per_step, mul_adds_per_token (without \
attention and the output matrix, which only a prompt's last token goes through), kv_bytes_per_token (read for each \
token of the context), the ceilings, if requested (the best read rate and the one over a second), and logits_bytes: \
what the last step read back.";
