//! Nemotron-H (arXiv 2504.03624) and Nemotron 3 (NVIDIA, 2025): a layer is Mamba 2, attention without positions, or an FFN,
//! one of them, with a squared ReLU; experts may work on fewer elements than a hidden state has.

use super::Arch;
use crate::blocks::{decoder, ffn_squared_relu, mamba2_mixer, mix_by_attention, moe, self_attention};
use crate::builder::Builder;
use crate::config::{Config, ExpertActivation, Gating, Keys, MAX_DIM, Norm, RopeKind, SsmConfig};
use crate::error::Result;
use llmrt_graph::Tensor;

pub(super) const ARCH: Arch =
    Arch { has_attention: true, norm: Norm::Rms, rope: RopeKind::None, config, graph };

fn config(cfg: &mut Config, keys: &Keys<'_>) -> Result<()> {
    cfg.ssm = SsmConfig::read(keys)?;
    cfg.ffn_scales = true;
    if let Some(moe) = &mut cfg.moe {
        moe.gating = Gating::Sigmoid;
        moe.activation = ExpertActivation::ReluSquared;
        moe.n_latent = keys.count_or("moe_latent_size", 0..=MAX_DIM, 0)?;
    }
    Ok(())
}

fn graph(b: &mut Builder<'_>) -> Result<Tensor> {
    decoder(b, block)
}

fn block(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    let h = b.norm("attn_norm", x)?; // [n_embd, n_tokens]
    let [y, x] = match (b.layer().n_ff, b.layer().is_recurrent()) {
        (0, true) => mamba2_mixer(b, h, x)?,
        (0, false) => mix_by_attention(b, h, x, self_attention)?,
        _ => {
            let [h, x] = b.keep_outputs([h, x]);
            [dense_or_experts(b, h)?, x]
        }
    }; // [n_embd, n]: in the last layer the outputs alone
    Ok(b.add("l_out", y, x))
}

fn dense_or_experts(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    match &b.cfg.moe {
        Some(_) => moe(b, x),
        None => ffn_squared_relu(b, x),
    }
}
