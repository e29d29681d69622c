//! GLM 5.3 (Z.ai, 2026): Kimi Delta Attention in most layers; in the others latent attention without positions, to blocks of
//! keys that an indexer of the layer or of one before it finds; experts; several residual streams that exchange.

use super::Arch;
use crate::blocks::{
    attention_output, dense_or_experts, head, indexed_mla, kda_mixer, mean_of_streams, mla_values, streams,
    token_embedding, weighted_mix, weighted_pool_indexer,
};
use crate::builder::Builder;
use crate::config::{
    Config, DecayGate, ExpertActivation, Gating, Glu, HyperConfig, IndexerConfig, Keys, MlaConfig, Norm,
    RopeKind, SsmConfig,
};
use crate::error::Result;
use llmrt_graph::Tensor;
use std::cell::Cell;

pub(super) const ARCH: Arch =
    Arch { has_attention: true, norm: Norm::Rms, rope: RopeKind::None, config, graph };

fn config(cfg: &mut Config, keys: &Keys<'_>) -> Result<()> {
    cfg.rope.params.n_dims = 0;
    cfg.mla = MlaConfig::read(keys, &cfg.rope)?;
    cfg.attn_scale = (cfg.mla.q_dim() as f32).sqrt().recip();
    cfg.ssm = SsmConfig::read_kda(keys, cfg.most_heads())?;
    cfg.ssm.unit_eps = 1e-6;
    let bound: Option<f32> = keys.optional("kda.gate_lower_bound")?;
    if let Some(bound) = bound.filter(|bound| bound.is_finite()) {
        cfg.ssm.decay = DecayGate::Sigmoid { bound, factor: -1.0 };
    }
    cfg.hyper = HyperConfig::read_exchanging(cfg, keys)?;
    read_indexer(cfg, keys)?;

    let of_experts = keys.f32_per_layer("swiglu_clamp_exp", cfg.n_layer)?;
    let of_all = match keys.meta.contains(&keys.name("swiglu_clamp_shexp")) {
        true => keys.f32_per_layer("swiglu_clamp_shexp", cfg.n_layer)?,
        false => of_experts.clone(),
    };
    let moe = cfg.experts(keys)?;
    moe.gating = keys.gating(Gating::Sigmoid)?;
    moe.activation = ExpertActivation::Gated(Glu::BoundedGate(of_experts));
    moe.glu_shared = Glu::BoundedGate(of_all);
    Ok(())
}

fn read_indexer(cfg: &mut Config, keys: &Keys<'_>) -> Result<()> {
    cfg.indexer = IndexerConfig::read(cfg, keys)?;
    cfg.indexer.norm_eps = keys.f32_or_zero("attention.layer_norm_epsilon", cfg.indexer.norm_eps)?;
    cfg.indexer.drops_tail = keys.optional("attention.indexer.kpool_select_tail")? == Some(false);
    let top_k = cfg.indexer.top_k;
    let stride = keys.count("attention.indexer.kpool", 2..=1 << 10)?;
    if !top_k.is_multiple_of(stride) {
        return Err(keys.bad("attention.indexer.top_k", top_k, format!("a multiple of {stride}")));
    }
    let is_full = keys.flags("attention.indexer.types", cfg.n_layer)?;
    let attends: Vec<bool> = cfg.layers.iter().map(|layer| !layer.is_recurrent()).collect();
    let has_own = |il: usize| is_full.as_ref().is_none_or(|is_full| is_full[il]);
    if let Some(il) = attends.iter().position(|attends| *attends).filter(|&il| !has_own(il)) {
        let expected = format!("1 in layer {il}, since none with attention comes before it");
        return Err(keys.bad("attention.indexer.types", 0, expected));
    }
    cfg.set_indexed(stride, |il| attends[il] && has_own(il));
    Ok(())
}

fn graph(b: &mut Builder<'_>) -> Result<Tensor> {
    let x = token_embedding(b)?; // [n_embd, n_tokens]
    let x = streams(b, x); // [n_embd * n_stream, n_tokens]
    let chosen = Cell::new(None);
    let x = b.layers(x, |b, x| block(b, x, &chosen))?; // [n_embd * n_stream, n_outputs]
    let x = mean_of_streams(b, x); // [n_embd, n_outputs]
    head(b, x) // [n_vocab, n_outputs]
}

fn block(b: &mut Builder<'_>, x: Tensor, chosen: &Cell<Option<Tensor>>) -> Result<Tensor> {
    let (h, spread) = weighted_mix(b, "hc_attn", x)?; // [n_embd, n_tokens]
    let h = b.norm("attn_norm", h)?;
    let [y, x] = match b.layer().is_recurrent() {
        true => kda_mixer(b, h, x)?,
        false => sparse_mla_mixer(b, h, x, chosen)?,
    }; // [.., n]: in the last layer the outputs alone
    let x = spread.of_outputs(b).add(b, "ffn_inp", y, x);

    let (h, spread) = weighted_mix(b, "hc_ffn", x)?;
    let h = b.norm("ffn_norm", h)?;
    let ffn = dense_or_experts(b, h)?;
    Ok(spread.add(b, "l_out", ffn, x))
}

fn sparse_mla_mixer(
    b: &mut Builder<'_>,
    h: Tensor,
    x: Tensor,
    chosen: &Cell<Option<Tensor>>,
) -> Result<[Tensor; 2]> {
    let latent = indexed_mla(b, h, chosen, weighted_pool_indexer)?; // [kv_rank * n_head, n_tokens]
    let [latent, x] = b.keep_outputs([latent, x]);
    let heads = mla_values(b, latent)?; // [v_dim * n_head, n]
    Ok([attention_output(b, heads)?, x])
}
