//! Kimi Linear (arXiv 2510.26692): Kimi Delta Attention in most layers, latent attention without positions in the others;
//! experts after the first layers.

use super::Arch;
use crate::blocks::{decoder, hybrid, kda_mixer, mla_mixer, swiglu_or_experts};
use crate::builder::Builder;
use crate::config::{Config, Keys, MlaConfig, Norm, RopeKind, SsmConfig};
use crate::error::Result;
use llmrt_graph::Tensor;

pub(super) const ARCH: Arch =
    Arch { has_attention: true, norm: Norm::Rms, rope: RopeKind::Normal, config, graph };

fn config(cfg: &mut Config, keys: &Keys<'_>) -> Result<()> {
    read_mixers(cfg, keys)?;
    cfg.unused = &["attn_q.scale"];
    cfg.experts(keys)?.normalise = true;
    Ok(())
}

/// Delta attention, and latent attention that has elements to rotate, and does not.
pub(super) fn read_mixers(cfg: &mut Config, keys: &Keys<'_>) -> Result<()> {
    cfg.mla = MlaConfig::read(keys, &cfg.rope)?;
    cfg.set_rope(|_| false);
    cfg.attn_scale = (cfg.mla.q_dim() as f32).sqrt().recip();
    cfg.ssm = SsmConfig::read_kda(keys, cfg.most_heads())?;
    Ok(())
}

fn graph(b: &mut Builder<'_>) -> Result<Tensor> {
    decoder(b, |b, x| hybrid(b, x, kda_mixer, mla_mixer, swiglu_or_experts))
}
