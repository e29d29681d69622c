//! GPT-2 (Radford et al. 2019): learned positions, layer norms, biases on everything.

use super::Arch;
use crate::blocks::{attention, attention_output, ffn_plain, head, position_embedding, qkv, token_embedding};
use crate::builder::Builder;
use crate::config::{Norm, RopeKind};
use crate::error::Result;
use llmrt_graph::{Activation, Tensor};

pub(super) const ARCH: Arch =
    Arch { has_attention: true, norm: Norm::Layer, rope: RopeKind::None, config: |_, _| Ok(()), graph };

fn graph(b: &mut Builder<'_>) -> Result<Tensor> {
    let x = token_embedding(b)?; // [n_embd, n_tokens]
    let pos = position_embedding(b)?;
    let x = b.add("inpL", x, pos);
    let x = b.layers(x, block)?; // [n_embd, n_outputs]
    head(b, x) // [n_vocab, n_outputs]
}

fn block(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    let h = b.norm("attn_norm", x)?; // [n_embd, n_tokens]
    let (q, k, v) = qkv(b, h)?; // [head_dim, n_head, n_tokens]
    let (q, k) = (b.name(q, "Qcur"), b.name(k, "Kcur"));
    let attn = attention(b, q, k, v)?; // [head_dim * n_head, n_tokens]
    let [attn, x] = b.keep_outputs([attn, x]); // [.., n]: in the last layer the outputs alone
    let attn = attention_output(b, attn)?; // [n_embd, n]
    let x = b.add("ffn_inp", attn, x);

    let h = b.norm("ffn_norm", x)?;
    let ffn = ffn_plain(b, Activation::Gelu, h)?;
    Ok(b.add("l_out", ffn, x))
}
