//! OLMoE (arXiv 2409.02060): Q and K are normed as whole rows before their heads are rotated; experts in all layers.

use super::Arch;
use crate::blocks::{attention, decoder, norm_all_heads, pre_norm, qkv, rope, swiglu_or_experts};
use crate::builder::Builder;
use crate::config::{Norm, RopeKind};
use crate::error::Result;
use llmrt_graph::Tensor;

pub(super) const ARCH: Arch = Arch {
    has_attention: true,
    norm: Norm::Rms,
    rope: RopeKind::Neox,
    config: |cfg, keys| {
        cfg.experts(keys)?.normalise = false;
        Ok(())
    },
    graph: |b| decoder(b, |b, x| pre_norm(b, x, attention_of_normed_rows, swiglu_or_experts)),
};

/// MiniMax M2 (MiniMax 2025): a part of each head is rotated; weights of experts are divided by their sum.
pub(super) const MINIMAX_M2: Arch = Arch {
    config: |cfg, keys| {
        cfg.experts(keys)?.normalise = true;
        Ok(())
    },
    ..ARCH
};

fn attention_of_normed_rows(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    let (q, k, v) = qkv(b, x)?; // [head_dim, n_head or n_head_kv, n_tokens]
    let (q, k) = (norm_all_heads(b, "attn_q_norm", q)?, norm_all_heads(b, "attn_k_norm", k)?);
    let (q, k) = (rope(b, "Qcur", q)?, rope(b, "Kcur", k)?);
    attention(b, q, k, v)
}
