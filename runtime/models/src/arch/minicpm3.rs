//! MiniCPM 3 (arXiv 2404.06395): K and V of all heads are made of one latent vector (MLA, arXiv 2405.04434), and cached as
//! heads; factors on embeddings, residuals and logits.

use super::{Arch, granite::scales_of_minicpm};
use crate::blocks::{decoder, expanded_mla, pre_norm, swiglu};
use crate::builder::Builder;
use crate::config::{Config, Keys, MlaConfig, Norm, RopeKind};
use crate::error::Result;
use llmrt_graph::Tensor;

pub(super) const ARCH: Arch =
    Arch { has_attention: true, norm: Norm::Rms, rope: RopeKind::Neox, config, graph };

fn config(cfg: &mut Config, keys: &Keys<'_>) -> Result<()> {
    cfg.mla = MlaConfig::read_expanded(cfg, keys)?;
    cfg.scales = scales_of_minicpm(cfg);
    Ok(())
}

fn graph(b: &mut Builder<'_>) -> Result<Tensor> {
    decoder(b, |b, x| pre_norm(b, x, expanded_mla, swiglu))
}
