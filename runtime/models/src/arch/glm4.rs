//! GLM 4 of 2025 (arXiv 2406.12793): norms on both sides of attention and FFN, fused gate and up.

use super::Arch;
use crate::blocks::{decoder, ffn_fused, sandwich_norm, self_attention};
use crate::builder::Builder;
use crate::config::{Norm, RopeKind};
use crate::error::Result;
use llmrt_graph::{Activation, Tensor};

pub(super) const ARCH: Arch = Arch {
    has_attention: true,
    norm: Norm::Rms,
    rope: RopeKind::Normal,
    config: |cfg, keys| cfg.rope.set_sections(keys).map(drop),
    graph,
};

fn graph(b: &mut Builder<'_>) -> Result<Tensor> {
    decoder(b, |b, x| sandwich_norm(b, x, self_attention, |b, x| ffn_fused(b, Activation::Silu, x)))
}
