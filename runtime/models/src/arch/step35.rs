//! Step 3.5 (StepFun 2026): heads of Q and K are normed, a gate for each head's result; three layers of four have a sliding
//! window, more heads and a rotation of their own, the others rotate half as many elements; experts after the first layers.

use super::Arch;
use crate::blocks::{attention, decoder, dense_or_routed, gated_heads, pre_norm, qkv, rope};
use crate::builder::Builder;
use crate::config::{Config, ExpertActivation, Gating, Glu, Keys, Norm, RopeKind};
use crate::error::Result;
use llmrt_graph::Tensor;

pub(super) const ARCH: Arch = Arch {
    has_attention: true,
    norm: Norm::Rms,
    rope: RopeKind::Neox,
    config,
    graph: |b| decoder(b, |b, x| pre_norm(b, x, gated_attention, dense_or_routed)),
};

fn config(cfg: &mut Config, keys: &Keys<'_>) -> Result<()> {
    cfg.read_listed_windows(keys)?;
    cfg.read_windowed_heads(keys)?;
    cfg.rope.params.n_dims = match cfg.rope.params.n_dims {
        n if n % 4 == 0 => n / 2,
        n => return Err(keys.bad("rope.dimension_count", n, "a multiple of 4, of which half is rotated")),
    };
    cfg.attn_scale = (cfg.head_dim_k as f32).sqrt().recip();
    cfg.unused = &["attn_gate.scale", "attn_gate.bias", "attn_output.bias"];

    let of_experts = keys.f32_per_layer("swiglu_clamp_exp", cfg.n_layer)?;
    let of_all = keys.f32_per_layer("swiglu_clamp_shexp", cfg.n_layer)?;
    let moe = cfg.experts(keys)?;
    moe.gating = keys.gating(Gating::Sigmoid)?;
    moe.activation = ExpertActivation::Gated(Glu::BoundedSilu(of_experts));
    moe.glu_shared = Glu::BoundedSilu(of_all);
    Ok(())
}

/// Norms and gates are left out where files do not have them.
fn gated_attention(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    let (q, k, v) = qkv(b, x)?; // [head_dim, n_head or n_head_kv, n_tokens]
    let (q, k) = (b.norm_if_there("attn_q_norm", q)?, b.norm_if_there("attn_k_norm", k)?);
    let (q, k) = (rope(b, "Qcur", q)?, rope(b, "Kcur", k)?);
    let heads = attention(b, q, k, v)?; // [head_dim * n_head, n_tokens]
    match b.has("attn_gate.weight") {
        true => gated_heads(b, x, heads),
        false => Ok(heads),
    }
}
