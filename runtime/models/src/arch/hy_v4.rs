//! Hunyuan 4 (Tencent, 2026): gated latent attention with sinks, to the few keys that a lightning indexer of the layer or of
//! one before it finds; experts; several residual streams with a weight each.

use super::Arch;
use crate::blocks::{
    attention_output, gated, head, indexed_mla, last_mix, lightning_indexer, mla_values, streams,
    swiglu_or_experts, token_embedding, weighted_mix,
};
use crate::builder::Builder;
use crate::config::{
    Config, ExpertActivation, Gating, Glu, HyperConfig, IndexerConfig, Keys, MlaConfig, Norm, RopeKind,
};
use crate::error::Result;
use llmrt_graph::Tensor;
use std::cell::Cell;

pub(super) const ARCH: Arch =
    Arch { has_attention: true, norm: Norm::Rms, rope: RopeKind::Normal, config, graph };

fn config(cfg: &mut Config, keys: &Keys<'_>) -> Result<()> {
    cfg.mla = MlaConfig::read(keys, &cfg.rope)?;
    cfg.attn_scale = (cfg.mla.q_dim() as f32).sqrt().recip();
    cfg.hyper = HyperConfig::read_weighted(cfg, keys)?;
    // Models that attend to all keys have no such keys.
    if keys.count_or("attention.indexer.top_k", 0..=u64::MAX, 0)? > 0 {
        cfg.indexer = IndexerConfig::read(cfg, keys)?;
        cfg.indexer.norm_eps = cfg.norm_eps;
        cfg.indexer.rope.offset = cfg.indexer.key_dim as u32 - cfg.rope.params.n_dims;
        let types = IndexerConfig::read_types(keys, cfg.n_layer, vec![true; cfg.n_layer])?;
        cfg.set_indexed(1, |il| types[il]);
    }
    let limits = keys.f32_per_layer("swiglu_clamp_exp", cfg.n_layer)?;
    cfg.unused = &["attn_gate.scale"];
    let moe = cfg.experts(keys)?;
    moe.gating = keys.gating(Gating::Sigmoid)?;
    moe.activation = ExpertActivation::Gated(Glu::BoundedGate(limits));
    Ok(())
}

fn graph(b: &mut Builder<'_>) -> Result<Tensor> {
    let x = token_embedding(b)?; // [n_embd, n_tokens]
    let x = streams(b, x); // [n_embd * n_stream, n_tokens]
    let chosen = Cell::new(None);
    let x = b.layers(x, |b, x| block(b, x, &chosen))?; // [n_embd * n_stream, n_outputs]
    let x = last_mix(b, x)?; // [n_embd, n_outputs]
    head(b, x) // [n_vocab, n_outputs]
}

fn block(b: &mut Builder<'_>, x: Tensor, chosen: &Cell<Option<Tensor>>) -> Result<Tensor> {
    let (h, spread) = weighted_mix(b, "hc_attn", x)?; // [n_embd, n_tokens]
    let h = b.norm("attn_norm", h)?;
    let [y, x] = gated_mla(b, h, x, chosen)?; // [.., n]: in the last layer the outputs alone
    let x = spread.of_outputs(b).add(b, "ffn_inp", y, x);

    let (h, spread) = weighted_mix(b, "hc_ffn", x)?;
    let h = b.norm("ffn_norm", h)?;
    let ffn = swiglu_or_experts(b, h)?;
    Ok(spread.add(b, "l_out", ffn, x))
}

fn gated_mla(
    b: &mut Builder<'_>,
    h: Tensor,
    x: Tensor,
    chosen: &Cell<Option<Tensor>>,
) -> Result<[Tensor; 2]> {
    let latent = indexed_mla(b, h, chosen, lightning_indexer)?; // [kv_rank * n_head, n_tokens]
    let [latent, h, x] = b.keep_outputs([latent, h, x]);
    let heads = mla_values(b, latent)?; // [v_dim * n_head, n]
    let heads = gated(b, h, heads)?;
    Ok([attention_output(b, heads)?, x])
}
