//! Talkie: norms without weights, of the embeddings too; heads of Q and K are normed after they are rotated, those of Q with
//! a factor for each; every layer adds the normed embeddings again.

use super::Arch;
use crate::blocks::{attention, head, norm_each_head, pre_norm, qkv, rope, swiglu, token_embedding};
use crate::builder::Builder;
use crate::config::{Norm, RopeKind};
use crate::error::Result;
use llmrt_graph::{Role, Tensor};

pub(super) const ARCH: Arch = Arch {
    has_attention: true,
    norm: Norm::Rms,
    rope: RopeKind::Neox,
    config: |cfg, keys| {
        cfg.has_norm_weights = false;
        cfg.scales.logits = keys.f32_or_zero("logit_scale", 1.0)?;
        cfg.ffn_scales = true;
        cfg.unused = &["ffn_up.scale", "ffn_gate.scale"];
        Ok(())
    },
    graph,
};

fn graph(b: &mut Builder<'_>) -> Result<Tensor> {
    let x = token_embedding(b)?; // [n_embd, n_tokens]
    let embeddings = b.norm("inp_norm", x)?;
    let x = b.layers(embeddings, |b, x| block(b, x, embeddings))?; // [n_embd, n_outputs]
    head(b, x) // [n_vocab, n_outputs]
}

fn block(b: &mut Builder<'_>, x: Tensor, embeddings: Tensor) -> Result<Tensor> {
    let x = pre_norm(b, x, attention_normed_late, swiglu)?; // [n_embd, n]
    let [embeddings] = b.keep_outputs([embeddings]);
    let scale = b.weight("layer_output_scale.weight", &[1], Role::Other)?;
    let skip = b.g.mul(embeddings, scale);
    Ok(b.add("l_out", x, skip))
}

fn attention_normed_late(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    let (q, k, v) = qkv(b, x)?; // [head_dim, n_head or n_head_kv, n_tokens]
    let (q, k) = (rope(b, "Qcur", q)?, rope(b, "Kcur", k)?);
    let (q, k) = (norm_each_head(b, "attn_q_norm", 1, q)?, b.norm("attn_k_norm", k)?);
    attention(b, q, k, v)
}
