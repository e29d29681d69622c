//! `inspect`, `plan`, `convert`, `quantize` and `synth`: about model files.

use super::{ContextArgs, OpenArgs};
use crate::cmd::quantize::{self, Mix, Rule};
use crate::cmd::synth::Shape;
use clap::Args;
use llmrt_abi::DType;
use std::path::PathBuf;

/// Show what a model file holds, and where it would run.
///
/// Nothing is loaded, but --check-tensors reads it all. In JSON an array of more than 8 elements is shown as its type, length and first elements.
#[derive(Args, Debug)]
pub struct Inspect {
    /// Model file [default: the embedded model].
    #[arg(value_name = "FILE")]
    pub model: Option<PathBuf>,
    /// Model file.
    #[arg(short = 'm', long = "model", value_name = "FILE", conflicts_with = "model")]
    pub model_file: Option<PathBuf>,
    /// List all tensors.
    #[arg(long)]
    pub tensors: bool,
    /// Show splits, nodes per device, the reason of each fallback, bytes copied per step.
    #[arg(long)]
    pub placement: bool,
    /// Dump the graph of one decode step.
    #[arg(long)]
    pub graph: bool,
    /// One JSON object on stdout.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub context: ContextArgs,
    /// Check all weights for NaN and infinity.
    #[arg(long, help_heading = "Loading")]
    pub check_tensors: bool,
    #[command(flatten)]
    pub open: OpenArgs,
}

/// Compute the memory a model needs, per device, without loading it.
///
/// Weights, KV cache of the whole context, compute memory of the largest step, and staging for copies. Exit code 6
/// says that a device has less free than it needs.
#[derive(Args, Debug)]
pub struct PlanArgs {
    /// Model file [default: the embedded model].
    #[arg(value_name = "FILE")]
    pub model: Option<PathBuf>,
    /// Model file.
    #[arg(short = 'm', long = "model", value_name = "FILE", conflicts_with = "model")]
    pub model_file: Option<PathBuf>,
    /// One JSON object on stdout.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub context: ContextArgs,
    #[command(flatten)]
    pub open: OpenArgs,
}

/// Convert a llama2.c checkpoint to GGUF, with F32 weights.
#[derive(Args, Debug)]
pub struct Convert {
    /// Checkpoint: v0, v1 or v2 (int8).
    #[arg(value_name = "CHECKPOINT")]
    pub input: PathBuf,
    /// GGUF file to write; an existing one is not overwritten.
    #[arg(value_name = "OUT.gguf")]
    pub output: PathBuf,
    /// tokenizer.bin [default: beside the checkpoint].
    #[arg(long, value_name = "FILE")]
    pub tokenizer: Option<PathBuf>,
    /// Overwrite the output; the checkpoint itself and its tokenizer.bin are never overwritten.
    #[arg(long)]
    pub force: bool,
}

/// Make a model smaller: write its matrices in another type.
#[derive(Args, Debug)]
#[command(after_help = QUANTIZE_HELP)]
pub struct Quantize {
    /// GGUF file, or any part of a split one.
    #[arg(value_name = "IN.gguf")]
    pub input: PathBuf,
    /// GGUF file to write; an existing one is not overwritten.
    #[arg(value_name = "OUT.gguf")]
    pub output: PathBuf,
    /// Type of most matrices: q4_k_m, q8_0, f16, …
    #[arg(value_name = "TYPE")]
    pub mix: Mix,
    /// Tensors whose name REGEX finds become TYPE (repeatable; the first that finds one counts).
    #[arg(long = "tensor", value_name = "REGEX=TYPE")]
    pub rules: Vec<Rule>,
    /// Type of the output matrix.
    #[arg(long, value_name = "TYPE", value_parser = quantize::encodable)]
    pub output_tensor_type: Option<DType>,
    /// Type of the token embeddings.
    #[arg(long, value_name = "TYPE", value_parser = quantize::encodable)]
    pub token_embedding_type: Option<DType>,
    /// All matrices in the same type: no better ones for those that matter more.
    #[arg(long)]
    pub pure: bool,
    /// Quantise what is quantised already; it loses twice.
    #[arg(long)]
    pub allow_requantize: bool,
    /// Overwrite the output; what is read is never overwritten.
    #[arg(long)]
    pub force: bool,
}

const QUANTIZE_HELP: &str = "\
TYPE is f32, f16, bf16, q8_0, q6_k, q5_k_m, q5_k_s, q4_k_m, q4_k_s, q3_k_l, q3_k_m, q3_k_s, q2_k, q2_k_s, q5_0, q5_1,
q4_0, q4_1, iq4_nl, iq4_xs, mxfp4, tq1_0, tq2_0, q2_0 or q1_0; q3_k, q4_k and q5_k are their _m forms. The output matrix,
and in the _m and _l forms some of attn_v and ffn_down, get a better type. Vectors, norms and small matrices stay as they
are. Rows that are no whole blocks of a type get another, which is said.

Example:
  llmrt quantize model-f16.gguf model-q4_k_m.gguf q4_k_m --tensor 'ffn_down=q6_k'";

/// Make a model file in a known model's shape with random weights, to measure speed with.
///
/// The same flags and seed give the same file, byte for byte; files of different types have the same numbers, but for
/// rounding.
#[derive(Args, Debug)]
#[command(after_help = SYNTH_HELP)]
pub struct Synth {
    /// GGUF file to write; an existing one is not overwritten.
    #[arg(value_name = "OUT.gguf")]
    pub output: PathBuf,
    /// The model whose shape it gets: qwen2.5-0.5b, llama-3.2-1b, llama-3.1-8b or mixtral-8x7b.
    #[arg(long, value_name = "MODEL")]
    pub like: Shape,
    /// Type of most matrices, as in `quantize`.
    #[arg(long = "type", value_name = "TYPE")]
    pub mix: Mix,
    /// Tensors whose name REGEX finds become TYPE (repeatable; the first that finds one counts).
    #[arg(long = "tensor", value_name = "REGEX=TYPE")]
    pub rules: Vec<Rule>,
    /// All matrices in the same type: no better ones for those that matter more.
    #[arg(long)]
    pub pure: bool,
    /// Layers [default: the model's].
    #[arg(long, value_name = "N")]
    pub layers: Option<u64>,
    /// GGUF file to take the vocabulary from [default: one made by a rule, of the model's size].
    #[arg(long, value_name = "FILE")]
    pub vocab: Option<PathBuf>,
    /// Where random numbers begin.
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
