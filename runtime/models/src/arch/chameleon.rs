//! Chameleon (arXiv 2405.09818), text alone: heads of Q and K have layer norms, each with weights of its own; the 34B norms what
//! attention and FFN give instead of what they take. Tokens of images are not written.

use super::Arch;
use crate::blocks::{attention, attention_output, head, pre_norm, qkv, rope, swiglu, token_embedding};
use crate::builder::Builder;
use crate::config::{Config, Keys, Norm, RopeKind};
use crate::error::Result;
use llmrt_graph::{Role, Tensor};

pub(super) const ARCH: Arch =
    Arch { has_attention: true, norm: Norm::Rms, rope: RopeKind::Normal, config, graph };

/// Tokens of images: the vocabulary's from the first to before the second.
const IMAGE_TOKENS: [u64; 2] = [4, 8196];

fn config(cfg: &mut Config, keys: &Keys<'_>) -> Result<()> {
    if cfg.n_vocab <= IMAGE_TOKENS[1] {
        return Err(keys.bad("vocab_size", cfg.n_vocab, format!("more than {} tokens", IMAGE_TOKENS[1])));
    }
    cfg.norms_results = keys.optional("swin_norm")?.unwrap_or(false);
    cfg.unused = &["rope_freqs.weight", "attn_output.bias"];
    Ok(())
}

fn graph(b: &mut Builder<'_>) -> Result<Tensor> {
    let x = token_embedding(b)?; // [n_embd, n_tokens]
    let x = b.layers(x, |b, x| match b.cfg.norms_results {
        true => block_of_normed_results(b, x),
        false => pre_norm(b, x, normed_attention, swiglu),
    })?; // [n_embd, n_outputs]
    let logits = head(b, x)?; // [n_vocab, n_outputs]

    let [start, end] = IMAGE_TOKENS;
    let [before, images, after] = [(0, start), (start, end), (end, b.cfg.n_vocab)]
        .map(|(start, end)| b.g.slice(logits, 0, start, end - start));
    let images = b.g.cont(images);
    let images = b.g.fill(images, f32::MIN);
    let x = b.g.concat(before, images, 0);
    Ok(b.g.concat(x, after, 0))
}

fn block_of_normed_results(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    let attn = normed_attention(b, x)?; // [head_dim * n_head, n_tokens]
    let [attn, x] = b.keep_outputs([attn, x]); // [.., n]: in the last layer the outputs alone
    let attn = attention_output(b, attn)?; // [n_embd, n]
    let attn = b.norm("attn_norm", attn)?;
    let x = b.add("ffn_inp", attn, x);

    let ffn = swiglu(b, x)?;
    let ffn = b.norm("ffn_norm", ffn)?;
    Ok(b.add("l_out", ffn, x))
}

fn normed_attention(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    let (q, k, v) = qkv(b, x)?; // [head_dim, n_head or n_head_kv, n_tokens]
    let (q, k) = (layer_norm_each_head(b, "attn_q_norm", q)?, layer_norm_each_head(b, "attn_k_norm", k)?);
    let (q, k) = (rope(b, "Qcur", q)?, rope(b, "Kcur", k)?);
    attention(b, q, k, v)
}

fn layer_norm_each_head(b: &mut Builder<'_>, name: &str, heads: Tensor) -> Result<Tensor> {
    const EPS: f32 = 1e-5;
    let [head_dim, n_head, ..] = b.g.ne(heads);
    let weight = b.weight(&format!("{name}.weight"), &[head_dim, n_head], Role::Norm)?;
    let bias = b.optional(&format!("{name}.bias"), &[head_dim, n_head], Role::Bias)?;
    let y = b.g.layer_norm(heads, None, None, EPS);
    let y = b.g.mul(y, weight);
    let y = bias.map_or(y, |bias| b.g.add(y, bias));
    Ok(b.name(y, name))
}
