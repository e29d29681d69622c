//! Llama 4 (Meta 2025): every fourth layer sees the whole context and does not rotate its heads, whose queries grow with the
//! logarithm of their positions instead; the others see the chunk of 8192 positions that a query is in, and norm heads after
//! they are rotated. Experts, in some models in every second layer, get inputs times their weights.

use super::Arch;
use crate::blocks::{attention, attention_temperature, decoder, pre_norm, qkv, rope, swiglu_or_experts};
use crate::builder::Builder;
use crate::config::{AllBut, Config, Gating, Keys, Norm, RopeKind, Temperature, Weighted};
use crate::error::Result;
use llmrt_graph::Tensor;

pub(super) const ARCH: Arch = Arch {
    has_attention: true,
    norm: Norm::Rms,
    rope: RopeKind::Normal,
    config,
    graph: |b| decoder(b, |b, x| pre_norm(b, x, chunked_attention, swiglu_or_experts)),
};

fn config(cfg: &mut Config, keys: &Keys<'_>) -> Result<()> {
    if keys.optional::<u64>("attention.sliding_window")? != Some(0) {
        cfg.read_windows(keys, CHUNK, AllBut::LastOf(4))?;
        cfg.has_chunks = true;
        cfg.set_rope(|il| il % 4 != 3);
        cfg.attn_temperature = Temperature { scale: 0.1, length: CHUNK as f32, offset: 1.0 };
    }
    let n_ff_expert = cfg.layers[0].n_ff_expert;
    if let Some(moe) = &mut cfg.moe {
        (moe.gating, moe.normalise) = (Gating::Sigmoid, false);
        moe.weighted = Weighted::Inputs;
        moe.n_ff_shared = n_ff_expert;
    }
    Ok(())
}

const CHUNK: u32 = 8192;

/// Maverick, known by its experts, has no norms of heads.
const N_EXPERT_OF_MAVERICK: u64 = 128;

fn chunked_attention(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    let (q, k, v) = qkv(b, x)?; // [head_dim, n_head or n_head_kv, n_tokens]
    if !b.layer().has_rope {
        let q = attention_temperature(b, q);
        return attention(b, q, k, v);
    }
    let (q, k) = (rope(b, "Qcur", q)?, rope(b, "Kcur", k)?);
    let (q, k) = match &b.cfg.moe {
        Some(moe) if moe.n_expert == N_EXPERT_OF_MAVERICK => (q, k),
        _ => (b.plain_norm("Qcur_normed", q), b.plain_norm("Kcur_normed", k)),
    };
    attention(b, q, k, v)
}
