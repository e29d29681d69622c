//! Command R (Cohere 2024): one norm, then attention and FFN side by side; layer norms without biases. The 104B norms the
//! heads of Q and K, each with weights of its own.

use super::Arch;
use crate::blocks::{attention, decoder, norm_each_head, parallel, qkv, rope, self_attention, swiglu};
use crate::builder::Builder;
use crate::config::{Config, Keys, Norm, RopeKind};
use crate::error::Result;
use llmrt_graph::Tensor;

pub(super) const ARCH: Arch =
    Arch { has_attention: true, norm: Norm::Layer, rope: RopeKind::Normal, config, graph };

/// Command R7B and Command A (arXiv 2504.00698): three layers of four have a sliding window, and only these rotate their
/// heads.
pub(super) const COHERE2: Arch = Arch {
    config: |cfg, keys| {
        config(cfg, keys)?;
        cfg.ffn_scales = true;
        let window = keys.optional("attention.sliding_window")?.unwrap_or(4096);
        let windowed = keys.windowed_layers(cfg.n_layer, 4)?;
        cfg.set_window(window, |il| windowed[il]);
        cfg.set_rope(|il| windowed[il]);
        Ok(())
    },
    graph: |b| decoder(b, |b, x| parallel(b, x, self_attention, swiglu)),
    ..ARCH
};

fn config(cfg: &mut Config, keys: &Keys<'_>) -> Result<()> {
    cfg.scales.logits = keys.f32_or_zero("logit_scale", 1.0)?;
    Ok(())
}

fn graph(b: &mut Builder<'_>) -> Result<Tensor> {
    // The 104B is known by its layers.
    match b.cfg.n_layer >= 64 {
        true => decoder(b, |b, x| parallel(b, x, normed_attention, swiglu)),
        false => decoder(b, |b, x| parallel(b, x, self_attention, swiglu)),
    }
}

fn normed_attention(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    let head_dim = b.cfg.head_dim_k;
    let (q, k, v) = qkv(b, x)?; // [head_dim, n_head or n_head_kv, n_tokens]
    let q = norm_each_head(b, "attn_q_norm", head_dim, q)?;
    let k = norm_each_head(b, "attn_k_norm", head_dim, k)?;
    let (q, k) = (rope(b, "Qcur", q)?, rope(b, "Kcur", k)?);
    attention(b, q, k, v)
}
