//! PLaMo 3 (Preferred Networks 2025): norms on both sides of attention and FFN and of the heads of Q and K, fused
//! projections; seven layers of eight have a sliding window.

use super::Arch;
use crate::blocks::{decoder, ffn_fused, normed_attention, sandwich_norm};
use crate::builder::Builder;
use crate::config::{Config, Keys, Norm, RopeKind};
use crate::error::Result;
use llmrt_graph::{Activation, Tensor};

pub(super) const ARCH: Arch =
    Arch { has_attention: true, norm: Norm::Rms, rope: RopeKind::Neox, config, graph };

fn config(cfg: &mut Config, keys: &Keys<'_>) -> Result<()> {
    let window = keys.optional("attention.sliding_window")?.unwrap_or(0);
    let windowed = keys.windowed_layers(cfg.n_layer, 8)?;
    cfg.set_window(window, |il| windowed[il]);
    cfg.rope.windowed = cfg.rope.unstretched(keys.f32_or_zero("rope.freq_base_swa", 10000.0)?);
    cfg.unused = &["attn_qkv.scale"];
    Ok(())
}

fn graph(b: &mut Builder<'_>) -> Result<Tensor> {
    decoder(b, |b, x| sandwich_norm(b, x, normed_attention, |b, x| ffn_fused(b, Activation::Silu, x)))
}
