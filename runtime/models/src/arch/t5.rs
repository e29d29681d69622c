//! T5 (arXiv 1910.10683) and Flan-T5 (2210.11416): an encoder and a decoder, whose attention has learned biases by distance
//! and no scale.

use super::Arch;
use crate::blocks::{Sides, biased_attention, ffn_gated, ffn_plain, qkv, relative_bias, token_embedding};
use crate::builder::Builder;
use crate::config::{Config, Keys, Norm, RopeKind};
use crate::error::Result;
use crate::input::Input;
use llmrt_graph::{Activation, Tensor};

/// The encoder by itself, for embeddings.
pub(super) const T5ENCODER: Arch = Arch {
    has_attention: true,
    norm: Norm::Rms,
    rope: RopeKind::None,
    config,
    graph: |b| {
        let x = encoder(b)?; // [n_embd, n_tokens]
        let output_ids = b.input(Input::OutputIds);
        Ok(b.g.get_rows(x, output_ids)) // [n_embd, n_outputs]
    },
};

fn config(cfg: &mut Config, keys: &Keys<'_>) -> Result<()> {
    cfg.is_causal = false;
    cfg.attn_scale = 1.0;
    cfg.n_relative_buckets = keys.count("attention.relative_buckets_count", 4..=256)?;
    Ok(())
}

fn encoder(b: &mut Builder<'_>) -> Result<Tensor> {
    let x = token_embedding(b)?; // [n_embd, n_tokens]
    let bias = relative_bias(b, "enc.blk.0.attn_rel_b.weight", Sides::Both)?;
    b.set_stack("enc.");
    let x = b.layers(x, |b, x| {
        let x = self_attention(b, x, bias, Sides::Both)?;
        ffn(b, x)
    })?;
    b.norm("enc.output_norm", x)
}

/// x + attention(norm(x)), with biases of the layer's own if it has some, else the first layer's.
fn self_attention(b: &mut Builder<'_>, x: Tensor, bias: Tensor, sides: Sides) -> Result<Tensor> {
    let h = b.norm("attn_norm", x)?; // [n_embd, n_tokens]
    let (q, k, v) = qkv(b, h)?; // [head_dim, n_head or n_head_kv, n_tokens]
    let bias = match b.il() > 0 && b.has("attn_rel_b.weight") {
        true => relative_bias(b, "attn_rel_b.weight", sides)?,
        false => bias,
    };
    let attn = biased_attention(b, [q, k, v], bias, sides)?; // [head_dim * n_head, n_tokens]
    let attn = b.linear("attn_o", b.cfg.n_embd, attn)?; // [n_embd, n_tokens]
    Ok(b.add("attn_residual", attn, x))
}

/// x + ffn(norm(x)): with a gate in Flan-T5.
fn ffn(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    let h = b.norm("ffn_norm", x)?;
    let ffn = match b.has("ffn_gate.weight") {
        true => ffn_gated(b, Activation::Gelu, h)?,
        false => ffn_plain(b, Activation::Relu, h)?,
    };
    Ok(b.add("l_out", ffn, x))
}
