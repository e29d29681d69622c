//! Seed-OSS (ByteDance 2025): Llama whose files name the FFN's norm by what is before it.

use super::Arch;
use crate::blocks::{attention_output, decoder, self_attention, swiglu};
use crate::builder::Builder;
use crate::config::{Norm, RopeKind};
use crate::error::Result;
use llmrt_graph::Tensor;

pub(super) const ARCH: Arch =
    Arch { has_attention: true, norm: Norm::Rms, rope: RopeKind::Neox, config: |_, _| Ok(()), graph };

fn graph(b: &mut Builder<'_>) -> Result<Tensor> {
    decoder(b, block)
}

fn block(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    let h = b.norm("attn_norm", x)?; // [n_embd, n_tokens]
    let attn = self_attention(b, h)?; // [head_dim * n_head, n_tokens]
    let [attn, x] = b.keep_outputs([attn, x]); // [.., n]: in the last layer the outputs alone
    let attn = attention_output(b, attn)?; // [n_embd, n]
    let x = b.add("ffn_inp", attn, x);

    let h = b.norm("post_attention_norm", x)?;
    let ffn = swiglu(b, h)?;
    Ok(b.add("l_out", ffn, x))
}
