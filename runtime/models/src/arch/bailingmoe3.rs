//! Ling 3 (Ant Group, 2026): Kimi Delta Attention in most layers, latent attention with a gate for each head in the
//! others; experts after the first layers, all FFNs bounded.

use super::Arch;
use crate::blocks::{
    attention_output, decoder, dense_or_experts, gated_heads, hybrid, kda_mixer, mla, mla_values,
};
use crate::builder::Builder;
use crate::config::{Config, DecayGate, ExpertActivation, Glu, Keys, MlaConfig, Norm, RopeKind, SsmConfig};
use crate::error::Result;
use llmrt_graph::Tensor;

pub(super) const ARCH: Arch =
    Arch { has_attention: true, norm: Norm::Rms, rope: RopeKind::Normal, config, graph };

fn config(cfg: &mut Config, keys: &Keys<'_>) -> Result<()> {
    cfg.rope.set_sections(keys)?;
    cfg.mla = MlaConfig::read(keys, &cfg.rope)?;
    cfg.attn_scale = (cfg.mla.q_dim() as f32).sqrt().recip();
    cfg.ssm = SsmConfig::read_kda(keys, cfg.most_heads())?;
    cfg.ssm.decay = decay(keys)?;
    cfg.unused = &["attn_gate.scale", "attn_output.scale", "attn_q.scale"];
    let of_experts = keys.f32_per_layer("swiglu_clamp_exp", cfg.n_layer)?;
    let of_all = keys.f32_per_layer("swiglu_clamp_shexp", cfg.n_layer)?;
    let moe = cfg.experts(keys)?;
    moe.activation = ExpertActivation::Gated(Glu::BoundedSilu(of_experts));
    moe.glu_shared = Glu::BoundedSilu(of_all);
    Ok(())
}

fn decay(keys: &Keys<'_>) -> Result<DecayGate> {
    if keys.optional("kda.safe_gate")? == Some(false) {
        return Err(keys.bad("kda.safe_gate", false, "true: decays without a bound are not implemented"));
    }
    let bound: f32 = keys.meta.require(&keys.name("kda.gate_lower_bound"))?;
    match bound < 0.0 && bound.is_finite() {
        true => Ok(DecayGate::Sigmoid { bound, factor: 1.0 }),
        false => Err(keys.bad("kda.gate_lower_bound", bound, "a number below 0")),
    }
}

fn graph(b: &mut Builder<'_>) -> Result<Tensor> {
    decoder(b, |b, x| hybrid(b, x, kda_mixer, gated_mla_mixer, dense_or_experts))
}

fn gated_mla_mixer(b: &mut Builder<'_>, h: Tensor, x: Tensor) -> Result<[Tensor; 2]> {
    let latent = mla(b, h)?; // [kv_rank * n_head, n_tokens]
    let [latent, h, x] = b.keep_outputs([latent, h, x]); // [.., n]: in the last layer the outputs alone
    let heads = mla_values(b, latent)?; // [v_dim * n_head, n]
    let heads = gated_heads(b, h, heads)?;
    Ok([attention_output(b, heads)?, x])
}
