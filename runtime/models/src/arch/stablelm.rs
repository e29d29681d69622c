//! StableLM (arXiv 2402.17834): layer norms and a gated FFN; the 12B norms the heads of Q and K, each with weights of its
//! own, and has attention and FFN side by side.

use super::Arch;
use crate::blocks::{attention, decoder, norm_each_head, parallel, pre_norm, qkv, rope, swiglu};
use crate::builder::Builder;
use crate::config::{Norm, RopeKind};
use crate::error::Result;
use llmrt_graph::Tensor;

pub(super) const ARCH: Arch =
    Arch { has_attention: true, norm: Norm::Layer, rope: RopeKind::Neox, config: |_, _| Ok(()), graph };

fn graph(b: &mut Builder<'_>) -> Result<Tensor> {
    decoder(b, |b, x| match b.has("ffn_norm.weight") {
        true => pre_norm(b, x, normed_attention, swiglu),
        false => parallel(b, x, normed_attention, swiglu),
    })
}

fn normed_attention(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    let (q, k, v) = qkv(b, x)?; // [head_dim, n_head or n_head_kv, n_tokens]
    let (q, k) = (normed(b, "attn_q_norm", q)?, normed(b, "attn_k_norm", k)?);
    let (q, k) = (rope(b, "Qcur", q)?, rope(b, "Kcur", k)?);
    attention(b, q, k, v)
}

fn normed(b: &mut Builder<'_>, name: &str, heads: Tensor) -> Result<Tensor> {
    match b.has(&format!("{name}.weight")) {
        true => norm_each_head(b, name, b.layer().head_dim_k, heads),
        false => Ok(heads),
    }
}
