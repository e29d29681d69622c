//! Command R (Cohere 2024): one norm, then attention and FFN side by side; layer norms without biases. The 104B norms the
//! heads of Q and K, each with weights of its own.

use super::Arch;
use crate::blocks::{attention_by_normed_head, decoder, parallel, self_attention, swiglu};
use crate::builder::Builder;
use crate::config::{Config, Keys, Norm, RopeKind};
use crate::error::Result;
use llmrt_graph::Tensor;

pub(super) const ARCH: Arch =
    Arch { has_attention: true, norm: Norm::Layer, rope: RopeKind::Normal, config, graph };

/// Command R7B and Command A (arXiv 2504.00698): three layers of four have a sliding window, and only these rotate their
/// heads.
pub(super) const COHERE2: Arch = Arch {
    config: |cfg, keys| {
        config(cfg, keys)?;
        cfg.ffn_scales = true;
        let window = keys.optional("attention.sliding_window")?.unwrap_or(4096);
        let windowed = keys.windowed_layers(cfg.n_layer, 4)?;
        cfg.set_window(window, |il| windowed[il]);
        cfg.set_rope(|il| windowed[il]);
        Ok(())
    },
    graph: |b| decoder(b, |b, x| parallel(b, x, self_attention, swiglu)),
    ..ARCH
};

fn config(cfg: &mut Config, keys: &Keys<'_>) -> Result<()> {
    cfg.scales.logits = keys.f32_or_zero("logit_scale", 1.0)?;
    Ok(())
}

fn graph(b: &mut Builder<'_>) -> Result<Tensor> {
    // The 104B is known by its layers.
    match b.cfg.n_layer >= 64 {
        true => decoder(b, |b, x| parallel(b, x, attention_by_normed_head, swiglu)),
        false => decoder(b, |b, x| parallel(b, x, self_attention, swiglu)),
    }
}
