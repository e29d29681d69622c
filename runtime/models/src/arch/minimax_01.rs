//! MiniMax-01 (arXiv 2501.08313): lightning attention, which is linear, in seven layers of eight, attention in the eighth;
//! experts; residuals are the normed inputs, times a factor.

use super::Arch;
use crate::blocks::{decoder, lightning_mixer, mix_by_attention, self_attention, swiglu_or_experts};
use crate::builder::Builder;
use crate::config::{Config, Keys, MAX_DIM, Norm, RopeKind, SsmConfig};
use crate::error::Result;
use llmrt_graph::Tensor;

pub(super) const ARCH: Arch =
    Arch { has_attention: true, norm: Norm::Rms, rope: RopeKind::Neox, config, graph };

fn config(cfg: &mut Config, keys: &Keys<'_>) -> Result<()> {
    let is_recurrent = SsmConfig::read_recurrent_layers(keys, cfg.n_layer, 8)?;
    cfg.set_recurrent(|il| is_recurrent[il]);
    if cfg.head_dim_k > MAX_DIM / cfg.most_heads().max(1) {
        return Err(keys.bad(
            "attention.key_length",
            cfg.head_dim_k,
            format!("{MAX_DIM} elements in all heads"),
        ));
    }
    cfg.scales.residual = keys.f32_or_zero("residual_scale", 1.0)?;
    cfg.experts(keys)?.normalise = true;
    Ok(())
}

fn graph(b: &mut Builder<'_>) -> Result<Tensor> {
    decoder(b, block)
}

fn block(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    let h = b.norm("attn_norm", x)?; // [n_embd, n_tokens]
    let [y, h] = match b.layer().is_recurrent() {
        true => lightning_mixer(b, h, h)?,
        false => mix_by_attention(b, h, h, self_attention)?,
    }; // [n_embd, n]: in the last layer the outputs alone
    let h = b.g.scale(h, b.cfg.scales.residual);
    let x = b.add("ffn_inp", y, h);

    let h = b.norm("ffn_norm", x)?;
    let y = swiglu_or_experts(b, h)?;
    let h = b.g.scale(h, b.cfg.scales.residual);
    Ok(b.add("l_out", y, h))
}
