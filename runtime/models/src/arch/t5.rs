//! T5 (arXiv 1910.10683) and Flan-T5 (2210.11416): an encoder and a decoder, whose attention has learned biases by distance
//! and no scale.

use super::Arch;
use crate::blocks::{
    Sides, biased_attention, cross_attention, embedding_of, encoder_attention, ffn_gated, ffn_plain, logits,
    qkv, relative_bias, token_embedding,
};
use crate::builder::Builder;
use crate::config::{Config, Keys, LayerConfig, MAX_LAYERS, Norm, RopeKind};
use crate::error::Result;
use crate::input::Input;
use llmrt_graph::{Activation, Tensor};

/// T5 and Flan-T5: the encoder reads the prompt, and the decoder, which has cross attention, writes.
pub(super) const T5: Arch = Arch { config: config_of_both, graph, ..T5ENCODER };

/// The encoder of T5 by itself, for embeddings.
pub(super) const T5ENCODER: Arch = Arch {
    has_attention: true,
    norm: Norm::Rms,
    rope: RopeKind::None,
    config,
    graph: |b| {
        let x = token_embedding(b)?; // [n_embd, n_tokens]
        let x = encoder(b, x, |b, qkv, biases| biased_attention(b, qkv, biases, Sides::Both))?;
        Ok(b.outputs(x)) // [n_embd, n_outputs]
    },
};

fn config(cfg: &mut Config, keys: &Keys<'_>) -> Result<()> {
    cfg.is_causal = false;
    cfg.attn_scale = 1.0;
    cfg.n_relative_buckets = keys.count("attention.relative_buckets_count", 4..=256)?;
    cfg.n_encoder_layer = cfg.n_layer;
    Ok(())
}

fn config_of_both(cfg: &mut Config, keys: &Keys<'_>) -> Result<()> {
    config(cfg, keys)?;
    cfg.is_causal = true;
    cfg.n_layer = keys.count_or("decoder_block_count", 1..=MAX_LAYERS, cfg.n_layer as u64)? as usize;
    let first = cfg.layers[0].clone();
    for block in cfg.n_encoder_layer..cfg.n_layer {
        cfg.layers.push(LayerConfig { block, ..first.clone() });
    }
    let start: Option<u32> = keys.optional("decoder_start_token_id")?;
    if let Some(token) = start.filter(|&token| u64::from(token) >= cfg.n_vocab) {
        return Err(keys.bad("decoder_start_token_id", token, format!("below {}", cfg.n_vocab)));
    }
    cfg.decoder_start = start;
    Ok(())
}

/// The decoder's step, after the encoder has read the texts that are new in it.
fn graph(b: &mut Builder<'_>) -> Result<Tensor> {
    let read = match b.batch.n_encoder_tokens {
        0 => None,
        _ => {
            let tokens = b.input(Input::EncoderTokens);
            let x = embedding_of(b, tokens)?; // [n_embd, n_encoder_tokens]
            Some(encoder(b, x, encoder_attention)?)
        }
    };

    let x = token_embedding(b)?; // [n_embd, n_tokens]
    let biases = relative_bias(b, "dec.blk.0.attn_rel_b.weight", Sides::Before)?;
    b.set_stack("dec.");
    let x = b.layers(x, |b, x| {
        let x = self_attention(b, x, biases, Sides::Before, |b, qkv, biases| {
            biased_attention(b, qkv, biases, Sides::Before)
        })?;
        let x = see_encoder(b, x, read)?;
        let [x] = b.keep_outputs([x]); // [n_embd, n]: in the last layer the outputs alone
        ffn(b, x)
    })?;
    b.set_stack("");
    let x = b.norm("dec.output_norm", x)?;
    logits(b, x) // [n_vocab, n_outputs]
}

/// Attention of heads [head_dim, n_head, n] of Q, K and V with biases by distance.
type Attention = fn(&mut Builder<'_>, [Tensor; 3], Tensor) -> Result<Tensor>;

/// Hidden states of what is read, [n_embd, n].
fn encoder(b: &mut Builder<'_>, x: Tensor, attention: Attention) -> Result<Tensor> {
    let biases = relative_bias(b, "enc.blk.0.attn_rel_b.weight", Sides::Both)?;
    b.set_stack("enc.");
    let x = b.layers_in(0..b.cfg.n_encoder_layer, x, |b, x| {
        let x = self_attention(b, x, biases, Sides::Both, attention)?;
        ffn(b, x)
    })?;
    b.set_stack("");
    b.norm("enc.output_norm", x)
}

/// x + attention(norm(x)), with biases of the layer's own if it has some, else the first layer's.
fn self_attention(
    b: &mut Builder<'_>,
    x: Tensor,
    of_first: Tensor,
    sides: Sides,
    attention: Attention,
) -> Result<Tensor> {
    let h = b.norm("attn_norm", x)?; // [n_embd, n]
    let (q, k, v) = qkv(b, h)?; // [head_dim, n_head or n_head_kv, n]
    let biases = match b.il() > 0 && b.has("attn_rel_b.weight") {
        true => relative_bias(b, "attn_rel_b.weight", sides)?,
        false => of_first,
    };
    let attn = attention(b, [q, k, v], biases)?; // [head_dim * n_head, n]
    let attn = b.linear("attn_o", b.cfg.n_embd, attn)?; // [n_embd, n]
    Ok(b.add("attn_residual", attn, x))
}

/// x + attention(norm(x)) to what the encoder read; `read` is what it reads in this step.
fn see_encoder(b: &mut Builder<'_>, x: Tensor, read: Option<Tensor>) -> Result<Tensor> {
    let (il, n_head, n_head_kv) = (b.il(), b.layer().n_head, b.layer().n_head_kv);
    let (n_k, n_v) = (b.cfg.n_embd_k(il), b.cfg.n_embd_v(il));
    let h = b.norm("cross_attn_norm", x)?; // [n_embd, n_tokens]
    let q = b.linear("cross_attn_q", n_head * b.cfg.head_dim_k, h)?;
    let q = b.g.split_heads(q, n_head); // [head_dim, n_head, n_tokens]
    let read = match read {
        None => None,
        Some(y) => {
            let (k, v) = (b.linear("cross_attn_k", n_k, y)?, b.linear("cross_attn_v", n_v, y)?);
            Some([k, v].map(|rows| b.g.split_heads(rows, n_head_kv)))
        }
    };
    let attn = cross_attention(b, q, read)?; // [head_dim * n_head, n_tokens]
    let attn = b.linear("cross_attn_o", b.cfg.n_embd, attn)?;
    Ok(b.add("cross_residual", attn, x))
}

/// x + ffn(norm(x)), in Flan-T5 with a gate.
fn ffn(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    let h = b.norm("ffn_norm", x)?;
    let ffn = match b.has("ffn_gate.weight") {
        true => ffn_gated(b, Activation::Gelu, h)?,
        false => ffn_plain(b, Activation::Relu, h)?,
    };
    Ok(b.add("l_out", ffn, x))
}
