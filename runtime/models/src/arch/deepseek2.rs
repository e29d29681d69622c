//! DeepSeek V2 (arXiv 2405.04434): latent attention, whose cache is one row for all heads; experts beside an FFN that all
//! tokens go through; first layers without experts. V3 (2412.19437) as far as its experts are not chosen by groups.

use super::Arch;
use crate::blocks::{ffn_gated, ffn_shared, head, mla, mla_output, moe, token_embedding};
use crate::builder::Builder;
use crate::config::{Config, Gating, Keys, MAX_DIM, MlaConfig, Norm, RopeKind};
use crate::error::Result;
use llmrt_graph::{Activation, Tensor};

pub(super) const ARCH: Arch =
    Arch { has_attention: true, norm: Norm::Rms, rope: RopeKind::Normal, config, graph };

fn config(cfg: &mut Config, keys: &Keys<'_>) -> Result<()> {
    cfg.mla = MlaConfig::read(keys, &cfg.rope)?;
    set_scale(cfg, keys)?;
    set_experts(cfg, keys)
}

/// YaRN (arXiv 2309.00071, section 3.4) sharpens the softmax of stretched contexts by factors on Q and K. These models
/// have them on the scores instead, with a multiplier of their own, and rotations keep lengths.
fn set_scale(cfg: &mut Config, keys: &Keys<'_>) -> Result<()> {
    let stretch = cfg.rope.params.freq_scale.recip().ln();
    let multiplier: f32 = keys.optional("rope.scaling.yarn_log_multiplier")?.unwrap_or(0.0);
    let on_q_and_k = 1.0 + multiplier * stretch;
    if cfg.rope.params.ext_factor != 0.0 {
        cfg.rope.params.attn_factor /= 1.0 + 0.1 * stretch;
    }
    let plain = (cfg.mla.q_dim() as f32).sqrt().recip();
    cfg.attn_scale = plain * on_q_and_k * on_q_and_k;
    Ok(())
}

fn set_experts(cfg: &mut Config, keys: &Keys<'_>) -> Result<()> {
    let Some(moe) = &mut cfg.moe else { return Ok(()) };
    let n_dense = keys.count_or("leading_dense_block_count", 0..=cfg.n_layer as u64, 0)?;
    let n_ff = keys.count("expert_feed_forward_length", 1..=MAX_DIM)?;
    for (il, layer) in cfg.layers.iter_mut().enumerate() {
        layer.is_moe = il as u64 >= n_dense;
        layer.n_ff = if layer.is_moe { n_ff } else { layer.n_ff };
    }
    moe.n_ff_shared = n_ff * keys.count_or("expert_shared_count", 0..=MAX_SHARED, 0)?;
    moe.normalise = keys.optional("expert_weights_norm")?.unwrap_or(false);
    moe.gating = match keys.count_or("expert_gating_func", 1..=2, 1)? {
        1 => Gating::SoftMax,
        _ => Gating::Sigmoid,
    };
    match keys.count_or("expert_group_count", 0..=u64::MAX, 1)? {
        1 => Ok(()),
        n => {
            Err(keys.bad("expert_group_count", n, "1: experts that are chosen by groups are not implemented"))
        }
    }
}

/// Far above every model.
const MAX_SHARED: u64 = 1 << 10;

fn graph(b: &mut Builder<'_>) -> Result<Tensor> {
    let x = token_embedding(b)?; // [n_embd, n_tokens]
    let x = b.layers(x, block)?; // [n_embd, n_outputs]
    head(b, x) // [n_vocab, n_outputs]
}

fn block(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    let h = b.norm("attn_norm", x)?; // [n_embd, n_tokens]
    let attn = mla(b, h)?; // [kv_rank * n_head, n_tokens]
    let [attn, x] = b.keep_outputs([attn, x]); // [.., n]: in the last layer the outputs alone
    let attn = mla_output(b, attn)?; // [n_embd, n]
    let x = b.add("ffn_inp", attn, x);

    let h = b.norm("ffn_norm", x)?;
    let ffn = match &b.cfg.moe {
        Some(cfg) if b.layer().is_moe => {
            let chosen = moe(b, cfg, Activation::Silu, h)?;
            ffn_shared(b, cfg.n_ff_shared, Activation::Silu, h, chosen)?
        }
        _ => ffn_gated(b, Activation::Silu, h)?,
    };
    Ok(b.add("l_out", ffn, x))
}
