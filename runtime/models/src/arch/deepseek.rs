//! DeepSeek MoE (arXiv 2401.06066), and models that have its layers: attention as Llama's, then experts beside an FFN that all
//! tokens go through.

use super::Arch;
use crate::blocks::{decoder, pre_norm, self_attention, swiglu_or_experts};
use crate::config::{Norm, RopeKind};

pub(super) const ARCH: Arch = Arch {
    has_attention: true,
    norm: Norm::Rms,
    rope: RopeKind::Normal,
    config: |cfg, keys| {
        cfg.experts(keys)?.normalise = false;
        Ok(())
    },
    graph: |b| decoder(b, |b, x| pre_norm(b, x, self_attention, swiglu_or_experts)),
};

/// The language model of DeepSeek-OCR (arXiv 2510.18234).
pub(super) const DEEPSEEK2_OCR: Arch = Arch {
    rope: RopeKind::Neox,
    config: |cfg, keys| {
        cfg.share_no_heads();
        cfg.unused = &["rope_freqs.weight", "attn_output.bias"];
        cfg.experts(keys).map(drop)
    },
    ..ARCH
};

/// Ling (arXiv 2503.05139): all layers have experts.
pub(super) const BAILINGMOE: Arch = Arch {
    config: |cfg, keys| {
        cfg.experts(keys)?;
        cfg.layers.iter_mut().for_each(|layer| layer.is_moe = true);
        Ok(())
    },
    ..ARCH
};

/// ERNIE 4.5 (Baidu 2025): a few dense layers, then experts in every so many.
pub(super) const ERNIE4_5_MOE: Arch = Arch {
    config: |cfg, keys| {
        cfg.unused = &["attn_output.bias"];
        cfg.experts(keys)?.normalise = true;
        Ok(())
    },
    ..ARCH
};

/// Qwen 1.5 and 2 MoE (arXiv 2407.10671): the shared FFN has a gate of its own.
pub(super) const QWEN2MOE: Arch = Arch {
    rope: RopeKind::Neox,
    config: |cfg, keys| {
        let n_ff = cfg.layers[0].n_ff;
        let moe = cfg.experts(keys)?;
        (moe.normalise, moe.gates_shared) = (false, true);
        moe.share(n_ff);
        Ok(())
    },
    ..ARCH
};

/// Phi 3.5 MoE (arXiv 2404.14219): biases on everything but experts; LongRoPE factors.
pub(super) const PHIMOE: Arch = Arch {
    rope: RopeKind::Neox,
    config: |cfg, keys| {
        cfg.experts(keys)?.normalise = true;
        Ok(())
    },
    ..ARCH
};

/// DBRX (Databricks 2024): layer norms without biases, bounded Q, K and V.
pub(super) const DBRX: Arch = Arch {
    norm: Norm::Layer,
    rope: RopeKind::Neox,
    config: |cfg, keys| {
        cfg.clamp_qkv = keys.optional("attention.clamp_kqv")?.unwrap_or(0.0);
        cfg.ffn_norm = "attn_output_norm";
        cfg.experts(keys)?.normalise = true;
        Ok(())
    },
    ..ARCH
};
