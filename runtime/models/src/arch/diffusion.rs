//! Diffusion language models (arXiv 2502.09992): all tokens of a text see each other, and masked ones are filled in within
//! some steps over the whole text.

use super::Arch;
use crate::blocks::{decoder, normed_attention, pre_norm, self_attention, swiglu, swiglu_or_experts};
use crate::builder::Builder;
use crate::config::{Norm, RopeKind};
use crate::error::Result;
use llmrt_graph::Tensor;

/// Dream (arXiv 2508.15487), made of Qwen 2.5.
pub(super) const DREAM: Arch = Arch {
    config: |cfg, _| {
        cfg.is_causal = false;
        cfg.unused = &["output.bias", "rope_freqs.weight"];
        Ok(())
    },
    graph: dense,
    ..FAMILY
};

/// LLaDA (arXiv 2502.09992).
pub(super) const LLADA: Arch = Arch {
    rope: RopeKind::Normal,
    config: |cfg, _| {
        cfg.is_causal = false;
        cfg.unused =
            &["attn_output.bias", "ffn_gate.bias", "ffn_up.bias", "ffn_down.bias", "rope_freqs.weight"];
        Ok(())
    },
    graph: dense,
    ..FAMILY
};

/// LLaDA-MoE (arXiv 2509.24389).
pub(super) const LLADA_MOE: Arch = Arch {
    config: |cfg, keys| {
        cfg.is_causal = false;
        cfg.experts(keys)?.normalise = false;
        Ok(())
    },
    ..FAMILY
};

/// RND1 (Radical Numerics 2025), made of Qwen 3 MoE.
pub(super) const RND1: Arch = FAMILY;

const FAMILY: Arch = Arch {
    has_attention: true,
    norm: Norm::Rms,
    rope: RopeKind::Neox,
    config: |cfg, keys| {
        cfg.is_causal = false;
        cfg.experts(keys)?.normalise = true;
        Ok(())
    },
    graph: |b| decoder(b, |b, x| pre_norm(b, x, normed_attention, swiglu_or_experts)),
};

fn dense(b: &mut Builder<'_>) -> Result<Tensor> {
    decoder(b, |b, x| pre_norm(b, x, self_attention, swiglu))
}
