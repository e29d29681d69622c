//! Hunyuan (arXiv 2411.02265): heads of Q and K are normed after they are rotated.

use super::Arch;
use crate::blocks::{attention, decoder, pre_norm, qkv, rope, swiglu, swiglu_or_experts};
use crate::builder::Builder;
use crate::config::{Config, Keys, Norm, RopeKind};
use crate::error::Result;
use llmrt_graph::Tensor;

pub(super) const ARCH: Arch =
    Arch { has_attention: true, norm: Norm::Rms, rope: RopeKind::Neox, config, graph };

/// Maincode's Maincoder (2025): as Hunyuan, with neighbours as pairs.
pub(super) const MAINCODER: Arch = Arch { rope: RopeKind::Normal, config: |_, _| Ok(()), ..ARCH };

/// Hunyuan A13B (Tencent 2025): experts beside an FFN that all tokens go through.
pub(super) const HUNYUAN_MOE: Arch = Arch {
    config: |cfg, keys| {
        let n_ff = cfg.layers[0].n_ff;
        let moe = cfg.experts(keys)?;
        moe.normalise = true;
        moe.share(n_ff);
        Ok(())
    },
    graph: |b| decoder(b, |b, x| pre_norm(b, x, attention_normed_late, swiglu_or_experts)),
    ..ARCH
};

fn config(cfg: &mut Config, keys: &Keys<'_>) -> Result<()> {
    cfg.rope.set_sections(keys)?;
    // "NTK-aware" scaling: longer contexts by a larger base.
    let alpha = keys.f32_or_zero("rope.scaling.alpha", 0.0)?;
    if alpha > 0.0 && cfg.head_dim_k > 2 {
        let head_dim = cfg.head_dim_k as f32;
        cfg.rope.params.freq_base *= alpha.powf(head_dim / (head_dim - 2.0));
    }
    Ok(())
}

fn graph(b: &mut Builder<'_>) -> Result<Tensor> {
    decoder(b, |b, x| pre_norm(b, x, attention_normed_late, swiglu))
}

fn attention_normed_late(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    let (q, k, v) = qkv(b, x)?; // [head_dim, n_head or n_head_kv, n_tokens]
    let (q, k) = (rope(b, "Qcur", q)?, rope(b, "Kcur", k)?);
    let (q, k) = (b.norm("attn_q_norm", q)?, b.norm("attn_k_norm", k)?);
    attention(b, q, k, v)
}
