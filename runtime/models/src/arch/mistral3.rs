//! Ministral 3 (Mistral AI 2025): Llama whose queries grow with the logarithm of their positions past
//! the context of training (as in Llama 4).

use super::Arch;
use crate::blocks::{attention, attention_temperature, decoder, pre_norm, qkv, rope, swiglu_or_experts};
use crate::builder::Builder;
use crate::config::{Norm, RopeKind, Temperature};
use crate::error::Result;
use llmrt_graph::Tensor;

pub(super) const ARCH: Arch = Arch {
    has_attention: true,
    norm: Norm::Rms,
    rope: RopeKind::Normal,
    config: |cfg, keys| {
        cfg.ffn_scales = true;
        cfg.rope.read_betas(keys)?;
        cfg.moe.iter_mut().for_each(|moe| moe.normalise = true);
        cfg.attn_temperature = Temperature {
            scale: keys.optional("attention.temperature_scale")?.unwrap_or(0.0),
            length: cfg.rope.params.n_ctx_orig as f32,
            offset: 0.0,
        };
        // YaRN's factor on Q and K is divided by one of these models' own.
        let multiplier: f32 = keys.optional("rope.scaling.yarn_log_multiplier")?.unwrap_or(0.0);
        if cfg.rope.params.ext_factor != 0.0 {
            cfg.rope.params.attn_factor /= 1.0 + 0.1 * multiplier * cfg.rope.params.freq_scale.recip().ln();
        }
        Ok(())
    },
    graph,
};

fn graph(b: &mut Builder<'_>) -> Result<Tensor> {
    decoder(b, |b, x| pre_norm(b, x, tempered_attention, swiglu_or_experts))
}

fn tempered_attention(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    let (q, k, v) = qkv(b, x)?; // [head_dim, n_head or n_head_kv, n_tokens]
    let (q, k) = (rope(b, "Qcur", q)?, rope(b, "Kcur", k)?);
    let q = attention_temperature(b, q);
    attention(b, q, k, v)
}
