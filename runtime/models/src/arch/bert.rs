//! BERT (arXiv 1810.04805): embeddings of tokens, positions and the first type of tokens; a norm after each sum.

use super::Arch;
use crate::blocks::{
    attention_by_normed_row, ffn_fused, ffn_gated, ffn_plain, moe, norm_of_sum, position_embedding,
    self_attention, swiglu, token_embedding, token_type_embedding,
};
use crate::builder::Builder;
use crate::config::{Config, ExpertActivation, Keys, MAX_LAYERS, Norm, RopeKind};
use crate::error::Result;
use llmrt_graph::{Activation, Tensor};

pub(super) const ARCH: Arch = Arch {
    has_attention: true,
    norm: Norm::Layer,
    rope: RopeKind::None,
    config: |cfg, _| {
        cfg.is_causal = false;
        Ok(())
    },
    graph: |b| {
        let x = token_embedding(b)?; // [n_embd, n_tokens]
        let x = token_type_embedding(b, x)?;
        let pos = position_embedding(b)?;
        let x = b.add("inp_pos", x, pos);
        layers(b, x, |b, x| norm_of_sum(b, x, self_attention, ffn))
    },
};

/// Jina Embeddings v2 (arXiv 2310.19923): ALiBi (2108.12409); gated FFNs, and in the models of code norms of Q and K.
pub(super) const JINA_BERT_V2: Arch = Arch {
    config: |cfg, _| {
        cfg.is_causal = false;
        cfg.alibi_max_bias = 8.0;
        Ok(())
    },
    graph: |b| without_positions(b, |b, x| norm_of_sum(b, x, attention_of_jina_v2, ffn_of_jina_v2)),
    ..ARCH
};

/// Jina Embeddings v3 (arXiv 2409.10173), an XLM-RoBERTa whose heads are rotated. The adapters of tasks are merged.
pub(super) const JINA_BERT_V3: Arch = Arch {
    rope: RopeKind::Neox,
    graph: |b| without_positions(b, |b, x| norm_of_sum(b, x, self_attention, ffn)),
    ..ARCH
};

/// Nomic Embed (arXiv 2402.01613): heads are rotated, gated FFNs without biases.
pub(super) const NOMIC_BERT: Arch = Arch {
    rope: RopeKind::Neox,
    config: |cfg, _| {
        cfg.is_causal = false;
        cfg.unused = &["ffn_up.bias", "ffn_gate.bias", "ffn_down.bias"];
        Ok(())
    },
    graph: |b| without_positions(b, |b, x| norm_of_sum(b, x, self_attention, swiglu)),
    ..ARCH
};

/// Nomic Embed v2 (arXiv 2502.07972): experts in every second layer, without gates.
pub(super) const NOMIC_BERT_MOE: Arch = Arch {
    rope: RopeKind::Neox,
    config: config_of_experts,
    graph: |b| without_positions(b, |b, x| norm_of_sum(b, x, self_attention, ffn_or_experts)),
    ..ARCH
};

fn config_of_experts(cfg: &mut Config, keys: &Keys<'_>) -> Result<()> {
    let every = keys.count_or("moe_every_n_layers", 1..=MAX_LAYERS, 0)? as usize;
    cfg.is_causal = false;
    cfg.experts(keys)?.activation = ExpertActivation::Plain(Activation::Gelu);
    for (il, layer) in cfg.layers.iter_mut().enumerate() {
        layer.is_moe = every > 0 && il % every == 1;
    }
    Ok(())
}

fn without_positions(
    b: &mut Builder<'_>,
    block: impl Fn(&mut Builder<'_>, Tensor) -> Result<Tensor>,
) -> Result<Tensor> {
    let x = token_embedding(b)?; // [n_embd, n_tokens]
    let x = token_type_embedding(b, x)?;
    layers(b, x, block)
}

fn layers(
    b: &mut Builder<'_>,
    x: Tensor,
    block: impl Fn(&mut Builder<'_>, Tensor) -> Result<Tensor>,
) -> Result<Tensor> {
    let x = b.norm("token_embd_norm", x)?;
    b.layers(x, block) // [n_embd, n_outputs]
}

fn ffn(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    ffn_plain(b, Activation::Gelu, x)
}

fn ffn_or_experts(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    if b.layer().is_moe { moe(b, x) } else { ffn(b, x) }
}

fn attention_of_jina_v2(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    match b.has("attn_q_norm.weight") {
        true => attention_by_normed_row(b, x),
        false => self_attention(b, x),
    }
}

/// Gate and up in two matrices, or in one.
fn ffn_of_jina_v2(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    let n_up = b.dims("ffn_up.weight").map_or(0, |dims| dims[1]);
    match b.has("ffn_gate.weight") {
        true => ffn_gated(b, Activation::Gelu, x),
        false if n_up == b.layer().n_ff => ffn(b, x),
        false => ffn_fused(b, Activation::Gelu, x),
    }
}
