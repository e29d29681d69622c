//! Baichuan 1 and 2 (arXiv 2309.10305): the 7B rotates heads, the 13B has ALiBi (arXiv 2108.12409).

use super::Arch;
use crate::blocks::{decoder, pre_norm, self_attention, swiglu};
use crate::builder::Builder;
use crate::config::{Norm, RopeKind};
use crate::error::Result;
use llmrt_graph::Tensor;

pub(super) const ARCH: Arch = Arch {
    has_attention: true,
    norm: Norm::Rms,
    rope: RopeKind::Normal,
    config: |cfg, _| {
        // Files do not name the variant; the number of layers does.
        if cfg.n_layer != 32 {
            cfg.rope.kind = RopeKind::None;
        }
        if cfg.n_layer == 40 {
            cfg.alibi_max_bias = 8.0;
        }
        Ok(())
    },
    graph,
};

fn graph(b: &mut Builder<'_>) -> Result<Tensor> {
    decoder(b, |b, x| pre_norm(b, x, self_attention, swiglu))
}
