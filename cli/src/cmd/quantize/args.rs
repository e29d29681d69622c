//! The flags of `quantize`.

use super::{Mix, Rule, encodable};
use clap::Args;
use llmrt_abi::DType;
use std::path::PathBuf;

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
    /// Tensors whose name REGEX matches become TYPE (repeatable; the first that matches counts).
    #[arg(long = "tensor", value_name = "REGEX=TYPE")]
    pub rules: Vec<Rule>,
    /// Type of the output matrix.
    #[arg(long, value_name = "TYPE", value_parser = encodable)]
    pub output_tensor_type: Option<DType>,
    /// Type of the token embeddings.
    #[arg(long, value_name = "TYPE", value_parser = encodable)]
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
TYPE is f32, f16, bf16, q8_0, q6_k, q5_k_m, q5_k_s, q4_k_m, q4_k_s, q3_k_l, q3_k_m, q3_k_s, q2_k, q2_k_s, q5_0, \
q5_1, q4_0, q4_1, iq4_nl, iq4_xs, mxfp4, tq1_0, tq2_0, q2_0 or q1_0; q3_k, q4_k and q5_k are their _m forms. The \
output matrix, and in the _m and _l forms some of attn_v and ffn_down, get a better type. Vectors, norms and small \
matrices stay as they are. Rows that are no whole blocks of a type get another, with a line on stderr.

Example:
  llmrt quantize model-f16.gguf model-q4_k_m.gguf q4_k_m --tensor 'ffn_down=q6_k'";
