//! Gemma 3 (arXiv 2503.19786): norms on both sides of attention and FFN and of the heads of Q and K; five layers of six have
//! a sliding window and a rotation of their own. The file's norm weights have their 1 added already.

use super::Arch;
use crate::blocks::{decoder, ffn_gated, normed_attention, sandwich_norm};
use crate::builder::Builder;
use crate::config::{Config, Keys, Norm, RopeKind};
use crate::error::Result;
use llmrt_graph::{Activation, Tensor};

pub(super) const ARCH: Arch =
    Arch { has_attention: true, norm: Norm::Rms, rope: RopeKind::Neox, config, graph };

fn config(cfg: &mut Config, keys: &Keys<'_>) -> Result<()> {
    cfg.scales.embedding = (cfg.n_embd as f32).sqrt();
    let window = keys.optional("attention.sliding_window")?.unwrap_or(1024);
    let windowed = keys.windowed_layers(cfg.n_layer, 6)?;
    cfg.set_window(window, |il| windowed[il]);

    // Windows are short: their positions are neither stretched nor turned as slowly.
    let freq_base = keys.f32_or_zero("rope.freq_base_swa", 10000.0)?;
    cfg.rope.windowed = cfg.rope.unstretched(freq_base);

    // The 27B, known by its layers, scales queries by n_embd / n_head, the smaller ones by their heads' size.
    if cfg.n_layer == 62 {
        let query = cfg.n_embd_of_head() as f32;
        cfg.attn_scale = keys.f32_or_zero("attention.scale", query.sqrt().recip())?;
    }
    cfg.final_softcap = keys.optional("final_logit_softcapping")?.unwrap_or(0.0);
    Ok(())
}

fn graph(b: &mut Builder<'_>) -> Result<Tensor> {
    decoder(b, |b, x| sandwich_norm(b, x, normed_attention, |b, x| ffn_gated(b, Activation::Gelu, x)))
}
