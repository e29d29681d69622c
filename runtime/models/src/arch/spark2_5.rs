//! iFlytek Spark 2.5: a gate on each head's result; some layers have a sliding window and a rotation of their own.

use super::Arch;
use crate::blocks::{decoder, ffn_gated, gated_heads, pre_norm, self_attention};
use crate::builder::Builder;
use crate::config::{Config, Keys, Norm, RopeKind};
use crate::error::Result;
use llmrt_graph::{Activation, Tensor};

pub(super) const ARCH: Arch =
    Arch { has_attention: true, norm: Norm::Rms, rope: RopeKind::Neox, config, graph };

fn config(cfg: &mut Config, keys: &Keys<'_>) -> Result<()> {
    let window = keys.optional("attention.sliding_window")?.unwrap_or(0);
    let windowed = keys.flags("attention.sliding_window_pattern", cfg.n_layer)?.unwrap_or_default();
    cfg.set_window(window, |il| windowed.get(il) == Some(&true));
    cfg.rope.windowed.freq_base = keys.f32_or_zero("rope.freq_base_swa", cfg.rope.params.freq_base)?;
    cfg.rope.set_windowed_dims(keys, cfg.head_dim_k)?;
    cfg.unused = &["attn_gate.scale"];
    Ok(())
}

fn graph(b: &mut Builder<'_>) -> Result<Tensor> {
    decoder(b, |b, x| pre_norm(b, x, gated_attention, |b, x| ffn_gated(b, Activation::Gelu, x)))
}

fn gated_attention(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    let heads = self_attention(b, x)?; // [head_dim * n_head, n_tokens]
    gated_heads(b, x, heads)
}
