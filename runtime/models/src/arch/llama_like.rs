//! Decoders that are Llama (arXiv 2302.13971) but for the pairs that are rotated, biases and fused projections, which the
//! file decides.

use super::Arch;
use crate::blocks::{decoder, ffn_fused, ffn_squared_relu, pre_norm, self_attention, swiglu};
use crate::builder::Builder;
use crate::config::{Config, Keys, Norm, RopeKind};
use crate::error::Result;
use llmrt_graph::{Activation, Tensor};

/// InternLM 2 (arXiv 2403.17297).
pub(super) const INTERNLM2: Arch = NORMAL;

/// XVERSE (XVERSE Technology 2023).
pub(super) const XVERSE: Arch = NORMAL;

/// ERNIE 4.5 (Baidu 2025), the dense ones.
pub(super) const ERNIE4_5: Arch = Arch {
    config: |cfg, _| {
        cfg.unused = &["attn_output.bias"];
        Ok(())
    },
    ..NORMAL
};

/// SmolLM 3 (Hugging Face 2025): every fourth layer does not rotate its heads (arXiv 2501.18795).
pub(super) const SMOLLM3: Arch = Arch {
    config: |cfg, _| {
        cfg.set_rope(|il| il % 4 != 3);
        Ok(())
    },
    ..NORMAL
};

/// Arcee's AFM (2025): squared ReLU instead of a gate.
pub(super) const ARCEE: Arch =
    Arch { graph: |b| decoder(b, |b, x| pre_norm(b, x, self_attention, ffn_squared_relu)), ..NORMAL };

/// ChatGLM 2 to 4 (arXiv 2406.12793): fused gate and up; half of each head is rotated.
pub(super) const CHATGLM: Arch =
    Arch { graph: |b| decoder(b, |b, x| pre_norm(b, x, self_attention, fused_swiglu)), ..NORMAL };

/// EXAONE 3 (arXiv 2408.03541).
pub(super) const EXAONE: Arch = NEOX;

/// Seed-OSS (ByteDance 2025): the FFN's norm is named by what is before it.
pub(super) const SEED_OSS: Arch = Arch {
    config: |cfg, _| {
        cfg.ffn_norm = "post_attention_norm";
        Ok(())
    },
    ..NEOX
};

/// openPangu Embedded (arXiv 2505.22375).
pub(super) const PANGU_EMBEDDED: Arch = Arch { config: without_frequency_factors, ..NEOX };

/// The language model of CogVLM (arXiv 2311.03079): weights for text alone; those for images are not used.
pub(super) const COGVLM: Arch = Arch {
    config: |cfg, keys| {
        without_frequency_factors(cfg, keys)?;
        cfg.unused = &["rope_freqs.weight", "attn_qkv.scale"];
        // Whatever the file has of rotations.
        cfg.rope.params = cfg.rope.plain(10000.0);
        cfg.share_no_heads();
        Ok(())
    },
    ..NEOX
};

/// Qwen 1 (arXiv 2309.16609): its FFN's length counts gate and up together.
pub(super) const QWEN: Arch = Arch {
    config: |cfg, _| {
        cfg.layers.iter_mut().for_each(|layer| layer.n_ff /= 2);
        cfg.share_no_heads();
        Ok(())
    },
    ..NEOX
};

/// Qwen 2 VL and 2.5 VL (arXiv 2409.12191), the language model.
pub(super) const QWEN2VL: Arch = Arch {
    config: |cfg, keys| {
        cfg.unused = &["output.bias", "attn_output.bias"];
        with_sections(cfg, keys)
    },
    ..NEOX
};

/// PaddleOCR VL (arXiv 2510.14528), the language model.
pub(super) const PADDLEOCR: Arch = Arch { config: with_sections, ..NEOX };

const NORMAL: Arch = Arch {
    has_attention: true,
    norm: Norm::Rms,
    rope: RopeKind::Normal,
    config: |_, _| Ok(()),
    graph: |b| decoder(b, |b, x| pre_norm(b, x, self_attention, swiglu)),
};

const NEOX: Arch = Arch { rope: RopeKind::Neox, ..NORMAL };

fn with_sections(cfg: &mut Config, keys: &Keys<'_>) -> Result<()> {
    cfg.rope.set_sections(keys).map(drop)
}

fn without_frequency_factors(cfg: &mut Config, _: &Keys<'_>) -> Result<()> {
    cfg.unused = &["rope_freqs.weight"];
    Ok(())
}

fn fused_swiglu(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    ffn_fused(b, Activation::Silu, x)
}
