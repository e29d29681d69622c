//! Kimi K3 (Moonshot AI, 2026): Kimi Linear's layers, with a gate after latent attention, experts on fewer elements than a
//! hidden state has, a bounded activation, and a residual stream that starts again every few layers: what it was before is
//! kept, and each part of a layer attends to it.

use super::{Arch, kimi_linear};
use crate::blocks::{
    attention_output, dense_or_experts, gated, head, kda_mixer, mla, mla_values, sum_used, token_embedding,
};
use crate::builder::Builder;
use crate::config::{Config, DecayGate, ExpertActivation, Glu, Keys, MAX_LAYERS, Norm, RopeKind};
use crate::error::Result;
use llmrt_graph::{Role, Tensor};
use std::cell::Cell;

pub(super) const ARCH: Arch =
    Arch { has_attention: true, norm: Norm::Rms, rope: RopeKind::Normal, config, graph };

fn config(cfg: &mut Config, keys: &Keys<'_>) -> Result<()> {
    kimi_linear::read_mixers(cfg, keys)?;
    let bound: Option<f32> = keys.optional("kda.gate_lower_bound")?;
    if let Some(bound) = bound.filter(|bound| bound.is_finite()) {
        cfg.ssm.decay = DecayGate::Sigmoid { bound, factor: -1.0 };
    }
    cfg.layers_per_residual = keys.count("attn_res.block_size", 0..=MAX_LAYERS)? as usize;
    cfg.unused = &["attn_q.scale", "attn_gate.scale", "attn_output.scale"];

    let beta = keys.meta.require(&keys.name("activation.situ_beta"))?;
    let linear_beta = keys.meta.require(&keys.name("activation.situ_linear_beta"))?;
    let glu = Glu::SoftBounded { beta, linear_beta };
    let moe = cfg.experts(keys)?;
    (moe.activation, moe.glu_shared) = (ExpertActivation::Gated(glu.clone()), glu);
    Ok(())
}

fn graph(b: &mut Builder<'_>) -> Result<Tensor> {
    let x = token_embedding(b)?; // [n_embd, n_tokens]
    let kept = Cell::new(None);
    let x = b.layers(x, |b, x| block(b, x, &kept))?; // [n_embd, n_outputs]
    let x = with_kept(b, "output_res_score", kept.get(), x)?;
    head(b, x) // [n_vocab, n_outputs]
}

/// `kept`: residual streams as they were before they started again, [n_embd, n_kept, n_tokens].
fn block(b: &mut Builder<'_>, x: Tensor, kept: &Cell<Option<Tensor>>) -> Result<Tensor> {
    let h = with_kept(b, "attn_res_score", kept.get(), x)?; // [n_embd, n_tokens]
    let starts_again = b.cfg.layers_per_residual > 0 && b.il().is_multiple_of(b.cfg.layers_per_residual);
    if starts_again {
        kept.set(Some(joined(b, kept.get(), x)));
    }
    let h = b.norm("attn_norm", h)?;
    let [y, x] = if b.layer().is_recurrent() { kda_mixer(b, h, x)? } else { gated_mla_mixer(b, h, x)? }; // [n_embd, n]
    kept.set(kept.get().map(|kept| of_outputs(b, kept))); // in the last layer the outputs alone
    let x = if starts_again { y } else { b.add("ffn_inp", y, x) };

    let h = with_kept(b, "ffn_res_score", kept.get(), x)?;
    let h = b.norm("ffn_norm", h)?;
    let ffn = dense_or_experts(b, h)?;
    Ok(b.add("l_out", ffn, x))
}

fn gated_mla_mixer(b: &mut Builder<'_>, h: Tensor, x: Tensor) -> Result<[Tensor; 2]> {
    let latent = mla(b, h)?; // [kv_rank * n_head, n_tokens]
    let [latent, h, x] = b.keep_outputs([latent, h, x]);
    let heads = mla_values(b, latent)?; // [v_dim * n_head, n]
    let heads = gated(b, h, heads)?;
    Ok([attention_output(b, heads)?, x])
}

/// The sum of `x` and what is kept, weighted by the softmax of the scores that the normed rows have: [n_embd, n].
fn with_kept(b: &mut Builder<'_>, score: &str, kept: Option<Tensor>, x: Tensor) -> Result<Tensor> {
    let Some(kept) = kept else { return Ok(x) };
    let all = joined(b, Some(kept), x); // [n_embd, n_kept + 1, n]
    let [n_embd, n_all, n, _] = b.g.ne(all);
    let weight = b.weight(&format!("{score}.weight"), &[n_embd], Role::Norm)?;
    let scores = b.g.rms_norm(all, weight, b.cfg.norm_eps);
    let scores = b.g.sum_rows(scores);
    let scores = b.g.reshape(scores, &[n_all, n]);
    let shares = b.g.soft_max(scores, None, 1.0);
    let shares = b.g.reshape(shares, &[1, n_all, n]);
    let parts = b.g.mul(all, shares);
    let y = sum_used(b, parts);
    Ok(b.name(y, score))
}

/// One more residual stream: [n_embd, n_kept + 1, n].
fn joined(b: &mut Builder<'_>, kept: Option<Tensor>, x: Tensor) -> Tensor {
    let [n_embd, n, ..] = b.g.ne(x);
    let one = b.g.reshape(x, &[n_embd, 1, n]);
    kept.map_or(one, |kept| b.g.concat(kept, one, 1))
}

fn of_outputs(b: &mut Builder<'_>, kept: Tensor) -> Tensor {
    let [n_embd, n_kept, n, _] = b.g.ne(kept);
    let rows = b.g.reshape(kept, &[n_embd * n_kept, n]);
    let [rows] = b.keep_outputs([rows]);
    let n = b.g.ne(rows)[1];
    b.g.reshape(rows, &[n_embd, n_kept, n])
}
