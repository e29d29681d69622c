//! DeepSeek-V3.2 (arXiv 2512.02556): DeepSeek-V3 whose queries attend to the few keys that a lightning indexer finds.

use super::{Arch, deepseek2};
use crate::blocks::{
    attention_output, decoder, indexed_mla, lightning_indexer, mix_and_feed, mla_values, swiglu_or_experts,
};
use crate::builder::Builder;
use crate::config::{Config, Gating, IndexerConfig, Keys, Norm, RopeKind};
use crate::error::Result;
use llmrt_graph::Tensor;
use std::cell::Cell;

pub(super) const ARCH: Arch = Arch {
    has_attention: true,
    norm: Norm::Rms,
    rope: RopeKind::Normal,
    config: |cfg, keys| {
        read(cfg, keys)?;
        cfg.indexer.rope.mode = NEOX;
        cfg.set_indexed(1, |_| true);
        Ok(())
    },
    graph,
};

/// GLM 5 (Z.ai, 2026). From 5.2 on, most layers attend to the keys that an indexer of a layer before them found.
pub(super) const GLM_DSA: Arch = Arch {
    config: |cfg, keys| {
        read(cfg, keys)?;
        // Files of GLM 5.2 may leave out which; those before it have shorter contexts.
        let is_older = cfg.n_ctx_train < 1 << 20;
        let default = (0..cfg.n_layer).map(|il| is_older || il < 2 || (il - 2).is_multiple_of(4)).collect();
        let types = IndexerConfig::read_types(keys, cfg.n_layer, default)?;
        cfg.set_indexed(1, |il| types[il]);
        Ok(())
    },
    ..ARCH
};

/// The op's mode of pairs (i, i + n_dims / 2).
pub(super) const NEOX: u32 = 2;

fn read(cfg: &mut Config, keys: &Keys<'_>) -> Result<()> {
    deepseek2::config(cfg, keys, |_, _| 1.0)?;
    cfg.indexer = IndexerConfig::read(cfg, keys)?;
    cfg.experts(keys)?.gating = keys.gating(Gating::Sigmoid)?;
    Ok(())
}

fn graph(b: &mut Builder<'_>) -> Result<Tensor> {
    let chosen = Cell::new(None);
    decoder(b, |b, x| {
        let mixer = |b: &mut Builder<'_>, h, x| sparse_mla_mixer(b, h, x, &chosen);
        mix_and_feed(b, x, mixer, swiglu_or_experts)
    })
}

/// Latent attention to the positions that the layer's indexer finds, or that those before it found.
fn sparse_mla_mixer(
    b: &mut Builder<'_>,
    h: Tensor,
    x: Tensor,
    chosen: &Cell<Option<Tensor>>,
) -> Result<[Tensor; 2]> {
    let latent = indexed_mla(b, h, chosen, lightning_indexer)?; // [kv_rank * n_head, n_tokens]
    let [latent, x] = b.keep_outputs([latent, x]);
    let heads = mla_values(b, latent)?; // [v_dim * n_head, n]
    Ok([attention_output(b, heads)?, x])
}
