//! What architectures are built from.

mod attention;
mod embedding;
mod ffn;
mod head;
mod linear;
mod mla;
mod moe;
mod ssm;

pub(crate) use attention::{attention, attention_output, qkv, rope};
pub(crate) use embedding::{position_embedding, token_embedding};
pub(crate) use ffn::{ffn_fused, ffn_gated, ffn_plain};
pub(crate) use head::head;
pub(crate) use mla::{mla, mla_output};
pub(crate) use moe::ffn;
pub(crate) use ssm::{mamba2, mamba2_output};
