//! Grok 1 and 2 (xAI 2024): norms on both sides of attention and FFN, soft caps on scores; experts, in Grok 2 beside a dense
//! FFN.

use super::Arch;
use crate::blocks::{attention_output, decoder, ffn_gated, moe, self_attention};
use crate::builder::Builder;
use crate::config::{Config, ExpertActivation, Glu, Keys, Norm, RopeKind};
use crate::error::Result;
use llmrt_graph::{Activation, Tensor};
use std::f32::consts::FRAC_1_SQRT_2;

pub(super) const ARCH: Arch =
    Arch { has_attention: true, norm: Norm::Rms, rope: RopeKind::Neox, config, graph: |b| decoder(b, block) };

/// What files of Grok 1 leave out.
fn config(cfg: &mut Config, keys: &Keys<'_>) -> Result<()> {
    cfg.scales.embedding = keys.f32_or_zero("embedding_scale", 78.383_67)?;
    cfg.scales.logits = keys.f32_or_zero("logit_scale", 0.577_350_26)?;
    cfg.attn_scale = keys.f32_or_zero("attention.output_scale", 0.088_388_346)?;
    cfg.attn_softcap = keys.optional("attn_logit_softcapping")?.unwrap_or(30.0);
    cfg.final_softcap = keys.optional("final_logit_softcapping")?.unwrap_or(0.0);
    cfg.rope.params.beta_fast = 8.0;
    cfg.rope.read_yarn(keys)?;
    let moe = cfg.experts(keys)?;
    moe.normalise = true;
    moe.activation = ExpertActivation::Gated(Glu::Plain(Activation::Gelu));
    Ok(())
}

fn block(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    let h = b.norm("attn_norm", x)?; // [n_embd, n_tokens]
    let attn = self_attention(b, h)?; // [head_dim * n_head, n_tokens]
    let [attn, x] = b.keep_outputs([attn, x]); // [.., n]: in the last layer the outputs alone
    let attn = attention_output(b, attn)?; // [n_embd, n]
    let attn = b.norm("attn_output_norm", attn)?;
    let x = b.add("ffn_inp", attn, x);

    let h = b.norm("ffn_norm", x)?;
    let ffn = experts_and_ffn(b, h)?;
    let ffn = match b.has("layer_output_norm.weight") {
        true => b.norm("layer_output_norm", ffn)?,
        false => b.norm("post_ffw_norm", ffn)?,
    };
    Ok(b.add("l_out", ffn, x))
}

fn experts_and_ffn(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    let chosen = moe(b, x)?;
    if !b.has("ffn_up.weight") {
        return Ok(chosen);
    }
    let ffn = ffn_gated(b, Activation::Gelu, x)?;
    let both = b.g.add(ffn, chosen);
    Ok(b.g.scale(both, FRAC_1_SQRT_2))
}
