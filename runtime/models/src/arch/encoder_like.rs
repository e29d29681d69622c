//! Encoders that are decoders but for attention, which sees what comes after a token, too, and for the head.

use super::Arch;
use crate::blocks::{
    encoder, ffn_fused, ffn_gated, normed_attention, pre_norm, sandwich_norm, self_attention, swiglu,
    swiglu_or_experts,
};
use crate::config::{AllBut, Norm, RopeKind};
use llmrt_graph::Activation;

/// EuroBERT (arXiv 2503.05500): a Llama.
pub(super) const EUROBERT: Arch = Arch {
    has_attention: true,
    norm: Norm::Rms,
    rope: RopeKind::Neox,
    config: |cfg, _| {
        cfg.is_causal = false;
        Ok(())
    },
    graph: |b| encoder(b, "output_norm", |b, x| pre_norm(b, x, self_attention, swiglu)),
};

/// NeoBERT (arXiv 2502.19587): a Llama with gate and up in one matrix.
pub(super) const NEO_BERT: Arch = Arch {
    rope: RopeKind::Normal,
    graph: |b| {
        encoder(b, "enc.output_norm", |b, x| {
            pre_norm(b, x, self_attention, |b, x| ffn_fused(b, Activation::Silu, x))
        })
    },
    ..EUROBERT
};

/// Llama Embed Nemotron (arXiv 2511.07025): Llama 3. Its file has whether attention is causal.
pub(super) const LLAMA_EMBED: Arch = Arch {
    config: super::llama::ARCH.config,
    graph: |b| encoder(b, "output_norm", |b, x| pre_norm(b, x, self_attention, swiglu_or_experts)),
    ..super::llama::ARCH
};

/// EmbeddingGemma (arXiv 2509.20354): Gemma 3, then, in some files, matrices that are meant for a text's vector. The mean of
/// products is the product of the mean.
pub(super) const GEMMA_EMBEDDING: Arch = Arch {
    config: |cfg, keys| {
        cfg.is_causal = false;
        cfg.scales.embedding = (cfg.n_embd as f32).sqrt();
        cfg.read_windows(keys, 512, AllBut::LastOf(6))?;
        cfg.rope.windowed = cfg.rope.unstretched(keys.f32_or_zero("rope.freq_base_swa", 10000.0)?);
        cfg.attn_scale = (cfg.head_dim_k as f32).sqrt().recip();
        Ok(())
    },
    graph: |b| {
        let x = encoder(b, "output_norm", |b, x| {
            sandwich_norm(b, x, normed_attention, |b, x| ffn_gated(b, Activation::Gelu, x))
        })?;
        ["dense_2", "dense_3"].into_iter().try_fold(x, |x, name| match b.dims(&format!("{name}.weight")) {
            Some([_, n, ..]) => b.matmul(name, n, x),
            None => Ok(x),
        })
    },
    ..EUROBERT
};
