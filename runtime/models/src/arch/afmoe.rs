//! Trinity (Arcee 2025): norms on both sides of attention and FFN and of the heads of Q and K; a gate on what attention gives;
//! three layers of four have a sliding window, and only these rotate their heads; experts after a few dense layers.

use super::Arch;
use crate::blocks::{decoder, gated, normed_attention, sandwich_norm, swiglu_or_experts};
use crate::builder::Builder;
use crate::config::{AllBut, Gating, Norm, RopeKind};
use crate::error::Result;
use llmrt_graph::Tensor;

pub(super) const ARCH: Arch = Arch {
    has_attention: true,
    norm: Norm::Rms,
    rope: RopeKind::Neox,
    config: |cfg, keys| {
        cfg.read_windows(keys, 0, AllBut::LastOf(4))?;
        cfg.set_rope(|il| il % 4 != 3);
        cfg.scales.embedding = (cfg.n_embd as f32).sqrt();
        cfg.unused = &["attn_gate.scale"];
        cfg.experts(keys)?.gating = keys.gating(Gating::Sigmoid)?;
        Ok(())
    },
    graph: |b| decoder(b, |b, x| sandwich_norm(b, x, gated_attention, swiglu_or_experts)),
};

fn gated_attention(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    let heads = normed_attention(b, x)?;
    gated(b, x, heads)
}
