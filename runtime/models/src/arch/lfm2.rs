//! LFM2 (arXiv 2511.23404): short convolutions with gates before and after in most layers, attention in the others; the
//! larger ones have experts after their first layers.

use super::Arch;
use crate::blocks::{
    hybrid, logits, mix_by_attention, normed_attention, short_conv_mixer, swiglu_or_experts, token_embedding,
};
use crate::builder::Builder;
use crate::config::{Config, Keys, MAX_TAPS, Norm, RopeKind};
use crate::error::Result;
use llmrt_graph::Tensor;

pub(super) const ARCH: Arch =
    Arch { has_attention: true, norm: Norm::Rms, rope: RopeKind::Neox, config, graph };

fn config(cfg: &mut Config, keys: &Keys<'_>) -> Result<()> {
    cfg.ssm.n_taps = keys.count("shortconv.l_cache", 2..=MAX_TAPS)?;
    match &mut cfg.moe {
        Some(moe) => moe.normalise = true,
        None => {
            let window = keys.optional("attention.sliding_window")?.unwrap_or(0);
            cfg.set_window(window, |_| true);
        }
    }
    Ok(())
}

fn graph(b: &mut Builder<'_>) -> Result<Tensor> {
    let x = token_embedding(b)?; // [n_embd, n_tokens]
    let x = b.layers(x, |b, x| {
        hybrid(
            b,
            x,
            short_conv_mixer,
            |b, h, x| mix_by_attention(b, h, x, normed_attention),
            swiglu_or_experts,
        )
    })?; // [n_embd, n_outputs]
    // The last norm, by its name in these files.
    let x = b.norm("token_embd_norm", x)?;
    logits(b, x) // [n_vocab, n_outputs]
}
