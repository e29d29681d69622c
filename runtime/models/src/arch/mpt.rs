//! MPT (MosaicML 2023): GPT-2 with ALiBi (arXiv 2108.12409) or learned positions; Q, K and V within bounds, and in some models
//! norms of all heads of Q and of K at once.

use super::Arch;
use crate::blocks::{attention, head, norm_all_heads, position_embedding, pre_norm, qkv, token_embedding};
use crate::builder::Builder;
use crate::config::{Norm, RopeKind};
use crate::error::Result;
use llmrt_graph::{Role, Tensor};

pub(super) const ARCH: Arch = Arch {
    has_attention: true,
    norm: Norm::Layer,
    rope: RopeKind::None,
    config: |cfg, keys| {
        cfg.clamp_qkv = keys.optional("attention.clamp_kqv")?.unwrap_or(0.0);
        cfg.alibi_max_bias = keys.optional("attention.max_alibi_bias")?.unwrap_or(0.0);
        Ok(())
    },
    graph,
};

fn graph(b: &mut Builder<'_>) -> Result<Tensor> {
    let x = token_embedding(b)?; // [n_embd, n_tokens]
    let x = match b.has("position_embd.weight") {
        true => {
            let pos = position_embedding(b)?;
            b.add("inpL", x, pos)
        }
        false => x,
    };
    let x = b.layers(x, |b, x| pre_norm(b, x, normed_attention, ffn))?; // [n_embd, n_outputs]
    head(b, x) // [n_vocab, n_outputs]
}

fn normed_attention(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    let (q, k, v) = qkv(b, x)?; // [head_dim, n_head or n_head_kv, n_tokens]
    let (q, k) = match b.has("attn_q_norm.weight") {
        true => (norm_all_heads(b, "attn_q_norm", q)?, norm_all_heads(b, "attn_k_norm", k)?),
        false => (q, k),
    };
    attention(b, q, k, v)
}

/// down(gelu(up(x)) / scales): AWQ (arXiv 2306.00978) moves factors from activations to weights.
fn ffn(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    let n_ff = b.layer().n_ff;
    let up = b.ffn_linear("ffn_up", n_ff, x)?;
    let h = b.g.gelu(up); // [n_ff, n]
    let h = match b.optional("ffn.act.scales", &[n_ff], Role::Other)? {
        None => h,
        Some(scales) => b.g.div(h, scales),
    };
    b.ffn_linear("ffn_down", b.cfg.n_embd, h)
}
