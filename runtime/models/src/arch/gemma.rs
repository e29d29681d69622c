//! Gemma (arXiv 2403.08295): Llama with scaled embeddings and GELU. The file's norm weights have their 1 added already.

use super::Arch;
use crate::blocks::{decoder, ffn_gated, pre_norm, self_attention};
use crate::builder::Builder;
use crate::config::{Norm, RopeKind};
use crate::error::Result;
use llmrt_graph::{Activation, Tensor};

pub(super) const ARCH: Arch = Arch {
    has_attention: true,
    norm: Norm::Rms,
    rope: RopeKind::Neox,
    config: |cfg, _| {
        cfg.scales.embedding = (cfg.n_embd as f32).sqrt();
        Ok(())
    },
    graph,
};

fn graph(b: &mut Builder<'_>) -> Result<Tensor> {
    decoder(b, |b, x| pre_norm(b, x, self_attention, |b, x| ffn_gated(b, Activation::Gelu, x)))
}
