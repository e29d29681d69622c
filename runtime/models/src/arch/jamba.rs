//! Jamba (arXiv 2403.19887, 2408.12570): Mamba in most layers, attention without positions in few; FFNs of which some are
//! experts.

use super::Arch;
use crate::blocks::{decoder, experts_if_routed, hybrid, mamba_mixer, mix_by_attention, self_attention};
use crate::builder::Builder;
use crate::config::{Config, Keys, Norm, RopeKind, SsmConfig};
use crate::error::Result;
use llmrt_graph::Tensor;

pub(super) const ARCH: Arch =
    Arch { has_attention: true, norm: Norm::Rms, rope: RopeKind::None, config, graph };

fn config(cfg: &mut Config, keys: &Keys<'_>) -> Result<()> {
    cfg.ssm = SsmConfig::read_mamba(keys)?;
    Ok(())
}

fn graph(b: &mut Builder<'_>) -> Result<Tensor> {
    decoder(b, |b, x| {
        hybrid(b, x, mamba_mixer, |b, h, x| mix_by_attention(b, h, x, self_attention), experts_if_routed)
    })
}
