//! Qwen 3 (arXiv 2505.09388): heads of Q and K are normed before they are rotated.

use super::Arch;
use crate::blocks::{decoder, normed_attention, pre_norm, swiglu};
use crate::builder::Builder;
use crate::config::{Norm, RopeKind};
use crate::error::Result;
use llmrt_graph::Tensor;

pub(super) const ARCH: Arch = Arch {
    has_attention: true,
    norm: Norm::Rms,
    rope: RopeKind::Neox,
    config: |cfg, _| {
        (cfg.ffn_scales, cfg.classifier.has_softmax) = (true, true);
        Ok(())
    },
    graph,
};

fn graph(b: &mut Builder<'_>) -> Result<Tensor> {
    decoder(b, |b, x| pre_norm(b, x, normed_attention, swiglu))
}
