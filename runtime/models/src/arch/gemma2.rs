//! Gemma 2 (arXiv 2408.00118): norms on both sides of attention and FFN, every second layer with a sliding window,
//! soft caps on scores and logits. The file's norm weights have their 1 added already.

use super::Arch;
use crate::blocks::{decoder, ffn_gated, sandwich_norm, self_attention};
use crate::builder::Builder;
use crate::config::{Config, Keys, Norm, RopeKind};
use crate::error::Result;
use llmrt_graph::{Activation, Tensor};

pub(super) const ARCH: Arch =
    Arch { has_attention: true, norm: Norm::Rms, rope: RopeKind::Neox, config, graph };

fn config(cfg: &mut Config, keys: &Keys<'_>) -> Result<()> {
    cfg.scales.embedding = (cfg.n_embd as f32).sqrt();
    let window = keys.optional("attention.sliding_window")?.unwrap_or(4096);
    let windowed = keys.windowed_layers(cfg.n_layer, 2)?;
    cfg.set_window(window, |il| windowed[il]);

    // The 27B, known by its layers, scales queries by n_embd / n_head, the smaller ones by their heads' size.
    if cfg.n_layer == 46 {
        let query = cfg.n_embd_of_head() as f32;
        cfg.attn_scale = keys.f32_or_zero("attention.scale", query.sqrt().recip())?;
    }
    cfg.attn_softcap = keys.optional("attn_logit_softcapping")?.unwrap_or(50.0);
    cfg.final_softcap = keys.optional("final_logit_softcapping")?.unwrap_or(30.0);
    Ok(())
}

fn graph(b: &mut Builder<'_>) -> Result<Tensor> {
    decoder(b, |b, x| sandwich_norm(b, x, self_attention, |b, x| ffn_gated(b, Activation::Gelu, x)))
}
