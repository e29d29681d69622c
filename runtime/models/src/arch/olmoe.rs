//! OLMoE (arXiv 2409.02060): Q and K are normed as whole rows before their heads are rotated; experts in all layers.

use super::Arch;
use crate::blocks::{attention_by_normed_row, decoder, pre_norm, swiglu_or_experts};
use crate::config::{Norm, RopeKind};

pub(super) const ARCH: Arch = Arch {
    has_attention: true,
    norm: Norm::Rms,
    rope: RopeKind::Neox,
    config: |cfg, keys| {
        cfg.experts(keys)?.normalise = false;
        Ok(())
    },
    graph: |b| decoder(b, |b, x| pre_norm(b, x, attention_by_normed_row, swiglu_or_experts)),
};

/// MiniMax M2 (MiniMax 2025): a part of each head is rotated; weights of experts are divided by their sum.
pub(super) const MINIMAX_M2: Arch = Arch {
    config: |cfg, keys| {
        cfg.experts(keys)?.normalise = true;
        Ok(())
    },
    ..ARCH
};
