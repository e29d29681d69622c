//! DeepSeek V2 and V3 (arXiv 2405.04434, 2412.19437): latent attention, whose cache is one row for all heads; experts beside
//! an FFN that all tokens go through, in V3 chosen by groups; first layers without experts.

use super::Arch;
use crate::blocks::{decoder, mix_and_feed, mla_mixer, swiglu_or_experts};
use crate::config::{Config, Gating, Keys, MlaConfig, Norm, RopeKind, Temperature};
use crate::error::Result;

pub(super) const ARCH: Arch = Arch {
    has_attention: true,
    norm: Norm::Rms,
    rope: RopeKind::Normal,
    config: |cfg, keys| config(cfg, keys, |_, _| 1.0),
    graph: |b| decoder(b, |b, x| mix_and_feed(b, x, mla_mixer, swiglu_or_experts)),
};

/// Mistral Large 3 and Small 4 (Mistral AI 2025, 2026): queries grow with the logarithm of their positions, and rotations
/// take a part of YaRN's factor.
pub(super) const MISTRAL4: Arch =
    Arch { config: |cfg, keys| config(cfg, keys, |plain, own| plain / own), ..ARCH };

pub(super) fn config(cfg: &mut Config, keys: &Keys<'_>, on_rotations: Share) -> Result<()> {
    cfg.mla = MlaConfig::read(keys, &cfg.rope)?;
    set_scale(cfg, keys, on_rotations)?;
    cfg.attn_temperature = Temperature {
        scale: keys.optional("attention.temperature_scale")?.unwrap_or(0.0),
        length: keys.f32_or_zero("attention.temperature_length", cfg.rope.params.n_ctx_orig as f32)?,
        offset: 0.0,
    };
    if let Some(moe) = &mut cfg.moe {
        moe.gating = keys.gating(default_gating(cfg.n_layer, cfg.n_vocab))?;
    }
    Ok(())
}

/// For files without the key: those of the first models, and of GLM 4.7 Flash, the only one of them with sigmoids.
fn default_gating(n_layer: usize, n_vocab: u64) -> Gating {
    match (n_layer, n_vocab) {
        (47 | 48, 154_880) => Gating::Sigmoid,
        _ => Gating::SoftMax,
    }
}

/// Of YaRN's factor and the model's own, what rotations keep.
pub(super) type Share = fn(f32, f32) -> f32;

/// YaRN (arXiv 2309.00071, section 3.4) sharpens the softmax of stretched contexts by a factor on Q and K, of which the op
/// puts `plain` on rotations. These models have a factor of their own, on the scores.
fn set_scale(cfg: &mut Config, keys: &Keys<'_>, on_rotations: Share) -> Result<()> {
    let stretch = cfg.rope.params.freq_scale.recip().ln();
    let multiplier: f32 = keys.optional("rope.scaling.yarn_log_multiplier")?.unwrap_or(0.0);
    let (plain, own) = (1.0 + 0.1 * stretch, 1.0 + multiplier * stretch);
    let kept = match cfg.rope.params.ext_factor {
        0.0 => plain,
        _ if multiplier == 0.0 => plain,
        _ => on_rotations(plain, own),
    };
    let on_q_and_k = own * kept * cfg.rope.params.attn_factor;
    cfg.rope.params.attn_factor *= kept / plain;
    cfg.attn_scale = on_q_and_k * on_q_and_k / (cfg.mla.q_dim() as f32).sqrt();
    Ok(())
}
