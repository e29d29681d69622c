//! Falcon (arXiv 2311.16867): attention and FFN side by side on one residual; the 40B norms attention's input apart.

use super::Arch;
use crate::blocks::{
    attention, attention_output, ffn_plain, head, is_by_neurons, plain_neurons, qkv, rope, token_embedding,
};
use crate::builder::Builder;
use crate::config::{Norm, RopeKind};
use crate::error::Result;
use llmrt_graph::{Activation, Tensor};

pub(super) const ARCH: Arch = Arch {
    has_attention: true,
    norm: Norm::Layer,
    rope: RopeKind::Neox,
    config: |cfg, keys| cfg.read_hidden_activation(keys),
    graph,
};

fn graph(b: &mut Builder<'_>) -> Result<Tensor> {
    let x = token_embedding(b)?; // [n_embd, n_tokens]
    let x = b.layers(x, block)?; // [n_embd, n_outputs]
    head(b, x) // [n_vocab, n_outputs]
}

fn block(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    let h = b.norm("attn_norm", x)?; // [n_embd, n_tokens]
    let attn_h = match b.has("attn_norm_2.weight") {
        true => b.norm("attn_norm_2", x)?,
        false => h,
    };

    let (q, k, v) = qkv(b, attn_h)?; // [head_dim, n_head or n_head_kv, n_tokens]
    let (q, k) = (rope(b, "Qcur", q)?, rope(b, "Kcur", k)?);
    let attn = attention(b, q, k, v)?; // [head_dim * n_head, n_tokens]
    let [attn, h, x] = b.keep_outputs([attn, h, x]); // [.., n]: in the last layer the outputs alone
    let attn = attention_output(b, attn)?; // [n_embd, n]

    let ffn = match b.cfg.neurons.activation.is_some() || is_by_neurons(b) {
        true => plain_neurons(b, h, x)?,
        false => ffn_plain(b, Activation::Gelu, h)?,
    };
    let both = b.g.add(ffn, attn);
    Ok(b.add("l_out", both, x))
}
