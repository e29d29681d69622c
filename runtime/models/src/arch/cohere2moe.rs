//! Command A with experts (Cohere 2026): one norm, then attention and FFN side by side; three layers of four have a sliding
//! window, and only these and the first, dense ones rotate their heads; experts and what all tokens go through are averaged.

use super::Arch;
use crate::blocks::{decoder, moe, parallel, self_attention, swiglu};
use crate::builder::Builder;
use crate::config::{AllBut, Config, Gating, Keys, Norm, RopeKind};
use crate::error::Result;
use llmrt_graph::Tensor;

pub(super) const ARCH: Arch = Arch {
    has_attention: true,
    norm: Norm::Layer,
    rope: RopeKind::Normal,
    config,
    graph: |b| decoder(b, |b, x| parallel(b, x, self_attention, averaged_experts)),
};

fn config(cfg: &mut Config, keys: &Keys<'_>) -> Result<()> {
    let eps = keys.f32_or_zero("attention.layer_norm_rms_epsilon", 0.0)?;
    if eps > 0.0 {
        (cfg.norm, cfg.norm_eps) = (Norm::Rms, eps);
    }
    let windowed = cfg.read_windows(keys, 4096, AllBut::FirstOf(4))?;
    cfg.rope.windowed = cfg.rope.params;
    let is_dense: Vec<bool> = cfg.layers.iter().map(|layer| !layer.is_moe).collect();
    cfg.set_rope(|il| windowed[il] || is_dense[il]);
    cfg.scales.logits = keys.f32_or_zero("logit_scale", 1.0)?;
    cfg.ffn_scales = true;
    cfg.experts(keys)?.gating = keys.gating(Gating::Sigmoid)?;
    Ok(())
}

fn averaged_experts(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    match &b.cfg.moe {
        Some(cfg) if b.layer().is_moe => {
            let both = moe(b, x)?;
            Ok(if cfg.n_ff_shared > 0 { b.g.scale(both, 0.5) } else { both })
        }
        _ => swiglu(b, x),
    }
}
