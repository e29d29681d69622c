//! dots.3 note (Rednote, 2026): latent attention with gates on its heads; in most layers with a window and sizes of its own,
//! in the others to the few keys that a lightning indexer finds. Experts after the first layers.

use super::Arch;
use super::deepseek32::NEOX;
use crate::blocks::{
    attention_output, decoder, gated_heads, indexed_mla, lightning_indexer, mix_and_feed, mla_values,
    swiglu_or_experts,
};
use crate::builder::Builder;
use crate::config::{Config, Gating, IndexerConfig, Keys, MlaConfig, Norm, RopeKind};
use crate::error::Result;
use llmrt_graph::Tensor;
use std::cell::Cell;

pub(super) const ARCH: Arch =
    Arch { has_attention: true, norm: Norm::Rms, rope: RopeKind::Normal, config, graph };

fn config(cfg: &mut Config, keys: &Keys<'_>) -> Result<()> {
    cfg.mla = MlaConfig::read(keys, &cfg.rope)?;
    cfg.windowed_mla = Some(cfg.mla.read_windowed(keys)?);
    cfg.attn_scale = (cfg.mla.q_dim() as f32).sqrt().recip();

    const WINDOWS: &str = "attention.sliding_window_pattern";
    let is_windowed = keys.flags(WINDOWS, cfg.n_layer)?.unwrap_or_else(|| vec![false; cfg.n_layer]);
    let window = keys.count("attention.sliding_window", 1..=u32::MAX.into())? as u32;
    cfg.set_window(window, |il| is_windowed[il]);
    cfg.rope.windowed.freq_base = keys.f32_or_zero("rope.freq_base_swa", cfg.rope.params.freq_base)?;

    cfg.indexer = IndexerConfig::read(cfg, keys)?;
    cfg.indexer.rope.mode = NEOX;
    cfg.set_indexed(1, |il| !is_windowed[il]);
    cfg.experts(keys)?.gating = keys.gating(Gating::Sigmoid)?;
    Ok(())
}

fn graph(b: &mut Builder<'_>) -> Result<Tensor> {
    decoder(b, |b, x| mix_and_feed(b, x, mixer, swiglu_or_experts))
}

fn mixer(b: &mut Builder<'_>, h: Tensor, x: Tensor) -> Result<[Tensor; 2]> {
    let latent = indexed_mla(b, h, &Cell::new(None), lightning_indexer)?; // [kv_rank * n_head, n_tokens]
    let [latent, h, x] = b.keep_outputs([latent, h, x]);
    let heads = mla_values(b, latent)?; // [v_dim * n_head, n]
    let heads = gated_heads(b, h, heads)?;
    Ok([attention_output(b, heads)?, x])
}
