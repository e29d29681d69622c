//! Decoders that are GPT-2 (Radford et al. 2019) but for how positions come in and what the FFN is: layer norms, biases.

use super::Arch;
use crate::blocks::{decoder, ffn_plain, ffn_squared_relu, pre_norm, self_attention, swiglu};
use crate::builder::Builder;
use crate::config::{Norm, RopeKind};
use crate::error::Result;
use llmrt_graph::{Activation, Tensor};

/// StarCoder (arXiv 2305.06161): multi-query attention (1911.02150).
pub(super) const STARCODER: Arch = super::gpt2::ARCH;

/// StarCoder 2 (arXiv 2402.19173).
pub(super) const STARCODER2: Arch = ROTATED;

/// CodeShell (arXiv 2403.15747).
pub(super) const CODESHELL: Arch = ROTATED;

/// The language model of Pocket TTS (Kyutai 2026): no biases but the norms'.
pub(super) const POCKETTTS: Arch = Arch { rope: RopeKind::Normal, ..ROTATED };

/// Nemotron 4 and Minitron (arXiv 2402.16819, 2407.14679): squared ReLU. The file's norm weights have their 1 added already.
pub(super) const NEMOTRON: Arch =
    Arch { graph: |b| decoder(b, |b, x| pre_norm(b, x, self_attention, ffn_squared_relu)), ..ROTATED };

/// Jais 2 (MBZUAI 2025): squared ReLU.
pub(super) const JAIS2: Arch = NEMOTRON;

/// Orion 14B (arXiv 2401.12246): a gated FFN.
pub(super) const ORION: Arch =
    Arch { graph: |b| decoder(b, |b, x| pre_norm(b, x, self_attention, swiglu)), ..ROTATED };

/// Jais (arXiv 2308.16149): ALiBi (2108.12409), a gated FFN, scores divided by the length of heads instead of its root (2203.03466).
pub(super) const JAIS: Arch = Arch {
    rope: RopeKind::None,
    config: |cfg, keys| {
        cfg.alibi_max_bias = keys.optional("attention.max_alibi_bias")?.unwrap_or(0.0);
        cfg.attn_scale = (cfg.head_dim_k as f32).recip();
        Ok(())
    },
    ..ORION
};

const ROTATED: Arch = Arch {
    has_attention: true,
    norm: Norm::Layer,
    rope: RopeKind::Neox,
    config: |_, _| Ok(()),
    graph: |b| decoder(b, |b, x| pre_norm(b, x, self_attention, ffn)),
};

fn ffn(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    ffn_plain(b, Activation::Gelu, x)
}
