//! Granite 4 (IBM, 2025): Mamba 2 in most layers, attention in few, by file with a rotation or without; factors on
//! embeddings, residuals and logits; experts beside an FFN that all tokens go through.

use super::{Arch, granite::set_scales};
use crate::blocks::{decoder, hybrid, mamba2_mixer, mix_by_attention, self_attention, swiglu_or_experts};
use crate::builder::Builder;
use crate::config::{Config, Keys, Norm, RopeKind, Scales, SsmConfig};
use crate::error::Result;
use llmrt_graph::Tensor;

pub(super) const ARCH: Arch =
    Arch { has_attention: true, norm: Norm::Rms, rope: RopeKind::Normal, config, graph };

fn config(cfg: &mut Config, keys: &Keys<'_>) -> Result<()> {
    cfg.ssm = SsmConfig::read(keys)?;
    let has_rope = keys.optional("rope.scaling.finetuned")?.unwrap_or(true);
    cfg.set_rope(|_| has_rope);
    set_scales(cfg, keys, Scales::default())
}

fn graph(b: &mut Builder<'_>) -> Result<Tensor> {
    decoder(b, |b, x| {
        hybrid(b, x, mamba2_mixer, |b, h, x| mix_by_attention(b, h, x, self_attention), swiglu_or_experts)
    })
}
