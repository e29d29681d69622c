//! OLMo (arXiv 2402.00838): layer norms without weights; Q, K and V within bounds.

use super::Arch;
use crate::blocks::{decoder, pre_norm, self_attention, swiglu};
use crate::builder::Builder;
use crate::config::{Norm, RopeKind};
use crate::error::Result;
use llmrt_graph::Tensor;

pub(super) const ARCH: Arch = Arch {
    has_attention: true,
    norm: Norm::Layer,
    rope: RopeKind::Normal,
    config: |cfg, keys| {
        cfg.has_norm_weights = false;
        cfg.clamp_qkv = keys.optional("attention.clamp_kqv")?.unwrap_or(0.0);
        Ok(())
    },
    graph,
};

fn graph(b: &mut Builder<'_>) -> Result<Tensor> {
    decoder(b, |b, x| pre_norm(b, x, self_attention, swiglu))
}
