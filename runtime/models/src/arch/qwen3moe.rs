//! Qwen 3 MoE (arXiv 2505.09388), and models that have its layers: heads of Q and K are normed before they are rotated; then
//! experts, in some models after a few dense layers and beside an FFN that all tokens go through.

use super::Arch;
use crate::blocks::{
    decoder, experts_if_routed, normed_attention, pre_norm, self_attention, swiglu_or_experts,
};
use crate::config::{AllBut, Config, ExpertActivation, Gating, Glu, Keys, MAX_SHARED, Norm, RopeKind};
use crate::error::Result;

pub(super) const ARCH: Arch = Arch {
    config: |cfg, keys| {
        cfg.ffn_scales = true;
        cfg.experts(keys)?.normalise = true;
        Ok(())
    },
    ..FAMILY
};

/// Qwen 3 VL MoE (arXiv 2511.21631), the language model.
pub(super) const QWEN3VLMOE: Arch = Arch {
    config: |cfg, keys| {
        cfg.rope.set_sections(keys)?;
        cfg.experts(keys)?.normalise = true;
        Ok(())
    },
    ..FAMILY
};

/// dots.llm1 (arXiv 2506.05767).
pub(super) const DOTS1: Arch = FAMILY;

/// Ling 2 (arXiv 2510.22115).
pub(super) const BAILINGMOE2: Arch = Arch {
    config: |cfg, keys| {
        let n_shared = keys.count_or("expert_shared_count", 0..=MAX_SHARED, 0)?;
        if keys.count_or("expert_shared_feed_forward_length", 0..=u64::MAX, 0)? > 0 {
            cfg.experts(keys)?.n_ff_shared *= n_shared;
        }
        Ok(())
    },
    ..FAMILY
};

/// K-EXAONE (LG AI Research 2025): three layers of four have a sliding window, and only these rotate their heads.
pub(super) const EXAONE_MOE: Arch = Arch {
    config: |cfg, keys| {
        let windowed = cfg.read_windows(keys, 128, AllBut::LastOf(4))?;
        cfg.rope.windowed = cfg.rope.params;
        cfg.set_rope(|il| windowed[il]);
        share_one(cfg, keys)
    },
    ..FAMILY
};

/// Hunyuan 3 (Tencent 2026).
pub(super) const HY_V3: Arch = Arch {
    config: |cfg, keys| {
        cfg.ffn_scales = true;
        cfg.experts(keys)?.gating = keys.gating(Gating::Sigmoid)?;
        share_one(cfg, keys)
    },
    graph: |b| decoder(b, |b, x| pre_norm(b, x, normed_attention, experts_if_routed)),
    ..FAMILY
};

/// GLM 4.5 to 4.7 (arXiv 2508.06471): the large ones norm the heads of Q and K, the smaller ones do not.
pub(super) const GLM4MOE: Arch = Arch {
    config: |cfg, keys| {
        cfg.rope.set_sections(keys)?;
        cfg.ffn_norm = "post_attention_norm";
        cfg.experts(keys)?.gating = keys.gating(Gating::Sigmoid)?;
        Ok(())
    },
    graph: |b| match b.has("blk.0.attn_q_norm.weight") {
        true => (FAMILY.graph)(b),
        false => decoder(b, |b, x| pre_norm(b, x, self_attention, swiglu_or_experts)),
    },
    ..FAMILY
};

/// Mellum 2 (JetBrains 2026): most layers have a sliding window, whose positions are not stretched.
pub(super) const MELLUM: Arch = Arch {
    config: |cfg, keys| {
        cfg.read_windows(keys, 0, AllBut::LastOf(4))?;
        cfg.rope.windowed = cfg.rope.plain(cfg.rope.params.freq_base);
        cfg.ffn_scales = true;
        cfg.experts(keys)?.normalise = true;
        Ok(())
    },
    ..FAMILY
};

/// Maple: layers with a sliding window rotate their heads, the others do not; gates and up are bounded.
pub(super) const MAPLE: Arch = Arch {
    config: |cfg, keys| {
        let windowed = cfg.read_windows(keys, 0, AllBut::LastOf(1))?;
        cfg.rope.set_windowed_dims(keys, cfg.head_dim_k)?;
        cfg.set_rope(|il| windowed[il]);
        let limits = keys.f32_per_layer("swiglu_clamp_exp", cfg.n_layer)?;
        let moe = cfg.experts(keys)?;
        (moe.normalise, moe.scale) = (true, 1.0);
        moe.activation = ExpertActivation::Gated(Glu::BoundedGate(limits));
        Ok(())
    },
    ..FAMILY
};

const FAMILY: Arch = Arch {
    has_attention: true,
    norm: Norm::Rms,
    rope: RopeKind::Neox,
    config: |cfg, keys| cfg.experts(keys).map(drop),
    graph: |b| decoder(b, |b, x| pre_norm(b, x, normed_attention, swiglu_or_experts)),
};

/// Without a length of its own, what all tokens go through is as large as an expert.
fn share_one(cfg: &mut Config, keys: &Keys<'_>) -> Result<()> {
    let n_ff_expert = cfg.layers[0].n_ff_expert;
    cfg.experts(keys)?.share(n_ff_expert);
    Ok(())
}
