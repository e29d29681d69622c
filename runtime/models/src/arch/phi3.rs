//! Phi 3 and 4 (arXiv 2404.14219): fused Q, K, V and fused gate and up; LongRoPE factors for long contexts.

use super::Arch;
use crate::blocks::{decoder, ffn_fused, pre_norm, self_attention};
use crate::builder::Builder;
use crate::config::{Norm, RopeKind};
use crate::error::Result;
use llmrt_graph::{Activation, Tensor};

pub(super) const ARCH: Arch = Arch {
    has_attention: true,
    norm: Norm::Rms,
    rope: RopeKind::Neox,
    config: |cfg, keys| {
        let window = keys.optional("attention.sliding_window")?.unwrap_or(0);
        cfg.set_window(window, |_| true);
        Ok(())
    },
    graph,
};

fn graph(b: &mut Builder<'_>) -> Result<Tensor> {
    decoder(b, |b, x| pre_norm(b, x, self_attention, |b, x| ffn_fused(b, Activation::Silu, x)))
}
