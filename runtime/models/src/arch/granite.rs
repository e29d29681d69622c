//! Granite 3 and 4 (IBM 2024): Llama with factors on embeddings, scores, residuals and logits. MiniCPM (arXiv 2404.06395)
//! has such factors too (μP, arXiv 2203.03466).

use super::Arch;
use crate::blocks::{decoder, pre_norm, self_attention, swiglu_or_experts};
use crate::builder::Builder;
use crate::config::{Config, Keys, Norm, RopeKind, Scales};
use crate::error::Result;
use llmrt_graph::Tensor;

pub(super) const ARCH: Arch =
    Arch { has_attention: true, norm: Norm::Rms, rope: RopeKind::Normal, config, graph };

/// Granite 3 MoE (IBM 2024): experts in all layers.
pub(super) const GRANITEMOE: Arch =
    Arch { config: |cfg, keys| set_scales(cfg, keys, Scales::default()), ..ARCH };

/// Granite with sliding windows and sinks (arXiv 2309.17453), of which some layers do not rotate their heads.
pub(super) const GRANITE_SWA: Arch = Arch {
    config: |cfg, keys| {
        set_scales(cfg, keys, Scales::default())?;
        let window = keys.optional("attention.sliding_window")?.unwrap_or(0);
        let windowed = keys.flags("attention.sliding_window_pattern", cfg.n_layer)?.unwrap_or_default();
        cfg.set_window(window, |il| windowed.get(il) == Some(&true));
        let rotated = keys.flags("attention.rope_pattern", cfg.n_layer)?.unwrap_or_default();
        cfg.set_rope(|il| rotated.get(il) != Some(&false));
        Ok(())
    },
    ..ARCH
};

/// MiniCPM (arXiv 2404.06395): factors that files of the first models do not have.
pub(super) const MINICPM: Arch =
    Arch { config: |cfg, keys| set_scales(cfg, keys, scales_of_minicpm(cfg)), ..ARCH };

pub(super) fn config(cfg: &mut Config, keys: &Keys<'_>) -> Result<()> {
    set_scales(cfg, keys, Scales::default())?;
    if keys.optional("rope.scaling.finetuned")? == Some(false) {
        cfg.rope.kind = RopeKind::None;
    }
    Ok(())
}

/// What MiniCPM is trained with.
pub(super) fn scales_of_minicpm(cfg: &Config) -> Scales {
    Scales { embedding: 12.0, residual: 1.4 / (cfg.n_layer as f32).sqrt(), logits: 256.0 / cfg.n_embd as f32 }
}

/// The files' factor on logits is a divisor. Weights of experts are divided by their sum.
pub(super) fn set_scales(cfg: &mut Config, keys: &Keys<'_>, defaults: Scales) -> Result<()> {
    cfg.moe.iter_mut().for_each(|moe| moe.normalise = true);
    cfg.scales = Scales {
        embedding: keys.f32_or_zero("embedding_scale", defaults.embedding)?,
        residual: keys.f32_or_zero("residual_scale", defaults.residual)?,
        logits: keys.f32_or_zero("logit_scale", defaults.logits.recip())?.recip(),
    };
    Ok(())
}

fn graph(b: &mut Builder<'_>) -> Result<Tensor> {
    decoder(b, |b, x| pre_norm(b, x, self_attention, swiglu_or_experts))
}
