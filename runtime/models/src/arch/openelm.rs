//! OpenELM (arXiv 2404.14619): more heads and longer FFNs in later layers; heads of Q and K are normed.

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
        cfg.unused = &["attn_qkv.scale"];
        Ok(())
    },
    graph,
};

fn graph(b: &mut Builder<'_>) -> Result<Tensor> {
    decoder(b, |b, x| pre_norm(b, x, normed_attention, swiglu))
}
