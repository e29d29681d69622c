//! Gemma 3n (Google DeepMind 2025): alternating updates (arXiv 2301.13310) of four copies of the hidden states; beside attention
//! a product of low rank (LAuReL, 2411.07501); sparse gates in the first layers; embeddings for each layer; later layers read
//! the caches of earlier ones. Four layers of five have a sliding window and a rotation of their own.

use super::Arch;
use crate::blocks::{
    added_to_others, attention_output, attention_over_shared_caches, copies, copy, corrected,
    embedding_of_layer, gated_embedding, head, merged, per_layer_embeddings, predictions, qkv,
    token_embedding,
};
use crate::builder::Builder;
use crate::config::{Config, Keys, MAX_DIM, Norm, RopeKind};
use crate::error::Result;
use llmrt_graph::{Activation, Role, Tensor};
use std::f32::consts::FRAC_1_SQRT_2;

pub(super) const ARCH: Arch =
    Arch { has_attention: true, norm: Norm::Rms, rope: RopeKind::Neox, config, graph };

/// Layers that have caches of their own.
const N_OWN_CACHES: usize = 20;

/// Layers whose gates are sparse, and how many standard deviations above the mean a gate opens: for one of twenty.
const N_SPARSE: usize = 10;
const SPARSE_DEVIATIONS: f32 = 1.644_853_6;

/// Elements between the matrices of LAuReL.
const LAUREL_RANK: u64 = 64;

fn config(cfg: &mut Config, keys: &Keys<'_>) -> Result<()> {
    cfg.scales.embedding = (cfg.n_embd as f32).sqrt();
    cfg.attn_scale = 1.0;
    cfg.final_softcap = 30.0;
    cfg.n_embd_per_layer = keys.count_or("embedding_length_per_layer_input", 1..=MAX_DIM, 256)?;
    let window = keys.count("attention.sliding_window", 0..=MAX_DIM)? as u32;
    let windowed = keys.windowed_layers(cfg.n_layer, 5)?;
    cfg.set_window(window, |il| windowed[il]);
    cfg.read_windowed_heads(keys)?;
    cfg.share_caches(keys, cfg.n_layer.min(N_OWN_CACHES))?;
    cfg.unused = &["rope_freqs.weight"];
    Ok(())
}

fn graph(b: &mut Builder<'_>) -> Result<Tensor> {
    let x = token_embedding(b)?; // [n_embd, n_tokens]
    let embeddings = per_layer_embeddings(b, x)?;
    let x = copies(b, x)?; // [n_embd, n_tokens, n_copies]
    let x = b.layers(x, |b, x| block(b, x, embeddings))?;
    let x = merged(b, x)?; // [n_embd, n_tokens]
    let x = b.outputs(x); // [n_embd, n_outputs]
    head(b, x) // [n_vocab, n_outputs]
}

fn block(b: &mut Builder<'_>, x: Tensor, embeddings: Tensor) -> Result<Tensor> {
    let predicted = predictions(b, x)?; // [n_embd, n_tokens, n_copies]
    let x = copy(b, predicted, 0); // [n_embd, n_tokens]
    let h = b.norm("attn_norm", x)?;
    let low_rank = laurel(b, h)?;
    let attn = attention_over_shared_caches(b, h, qkv)?;
    let attn = attention_output(b, attn)?;
    let attn = b.norm("post_attention_norm", attn)?;
    let attn = b.g.add(attn, x);
    let both = b.g.add(attn, low_rank);
    let x = b.g.scale(both, FRAC_1_SQRT_2);

    let h = b.norm("ffn_norm", x)?;
    let ffn = ffn(b, h)?;
    let ffn = b.norm("post_ffw_norm", ffn)?;
    let x = b.add("ffn_out", ffn, x);
    let x = corrected(b, predicted, x)?; // [n_embd, n_tokens, n_copies]

    let own = embedding_of_layer(b, embeddings);
    let scale = b.weight("altup_correct_scale.weight", &[b.cfg.n_embd], Role::Other)?;
    let first = copy(b, x, 0);
    let first = b.g.mul(first, scale);
    let more = gated_embedding(b, first, own)?;
    let x = added_to_others(b, x, more);
    Ok(b.name(x, "l_out"))
}

/// x + norm(r · l · x).
fn laurel(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    let low = b.linear("laurel_l", LAUREL_RANK, x)?;
    let y = b.linear("laurel_r", b.cfg.n_embd, low)?;
    let y = b.norm("laurel_post_norm", y)?;
    Ok(b.add("laurel_out", y, x))
}

fn ffn(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    let n_ff = b.layer().n_ff;
    let up = b.ffn_linear("ffn_up", n_ff, x)?;
    let gate = b.ffn_linear("ffn_gate", n_ff, x)?; // [n_ff, n_tokens]
    let gate = if b.il() < N_SPARSE { largest(b, gate) } else { gate };
    let h = b.g.glu(Activation::Gelu, gate, Some(up));
    b.ffn_linear("ffn_down", b.cfg.n_embd, h)
}

/// How far elements are above a bound that few of a normal distribution exceed; 0 for the others.
fn largest(b: &mut Builder<'_>, x: Tensor) -> Tensor {
    let n = b.g.ne(x)[0];
    let mean = b.g.mean(x); // [1, n_tokens]
    let centred = b.g.sub(x, mean);
    let squares = b.g.sqr(centred);
    let sum = b.g.sum_rows(squares);
    let variance = b.g.scale(sum, 1.0 / n.saturating_sub(1).max(1) as f32);
    let deviation = b.g.sqrt(variance);
    let bound = b.g.scale(deviation, SPARSE_DEVIATIONS);
    let above = b.g.sub(centred, bound);
    b.g.relu(above)
}
