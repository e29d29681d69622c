//! Decoders: tokens to logits through layers of attention and an FFN, in the arrangements that many models share. An
//! architecture gives its attention (heads of normed hidden states, before their output projection) and its FFN.

use super::{attention_output, head, token_embedding};
use crate::builder::Builder;
use crate::error::Result;
use llmrt_graph::Tensor;

/// A part of a layer: normed hidden states to heads, or to the FFN's result.
pub(crate) type Part = fn(&mut Builder<'_>, Tensor) -> Result<Tensor>;

/// Logits [n_vocab, n_outputs] of tokens that run through a block for each layer.
pub(crate) fn decoder(
    b: &mut Builder<'_>,
    block: impl Fn(&mut Builder<'_>, Tensor) -> Result<Tensor>,
) -> Result<Tensor> {
    let x = token_embedding(b)?; // [n_embd, n_tokens]
    let x = b.layers(x, block)?; // [n_embd, n_outputs]
    head(b, x) // [n_vocab, n_outputs]
}

/// x + attention(norm(x)), then x + ffn(norm(x)).
pub(crate) fn pre_norm(b: &mut Builder<'_>, x: Tensor, attention: Part, ffn: Part) -> Result<Tensor> {
    let h = b.norm("attn_norm", x)?; // [n_embd, n_tokens]
    let attn = attention(b, h)?; // [head_dim * n_head, n_tokens]
    let [attn, x] = b.keep_outputs([attn, x]); // [.., n]: in the last layer the outputs alone
    let attn = attention_output(b, attn)?; // [n_embd, n]
    let x = b.residual("ffn_inp", attn, x);

    let h = b.norm(b.cfg.ffn_norm, x)?;
    let ffn = ffn(b, h)?;
    Ok(b.residual("l_out", ffn, x))
}

/// x + norm(attention(x)), then x + norm(ffn(x)) (OLMo 2, arXiv 2501.00656).
pub(crate) fn post_norm(b: &mut Builder<'_>, x: Tensor, attention: Part, ffn: Part) -> Result<Tensor> {
    let attn = attention(b, x)?; // [head_dim * n_head, n_tokens]
    let [attn, x] = b.keep_outputs([attn, x]); // [.., n]: in the last layer the outputs alone
    let attn = attention_output(b, attn)?; // [n_embd, n]
    let attn = b.norm("post_attention_norm", attn)?;
    let x = b.residual("ffn_inp", attn, x);

    let ffn = ffn(b, x)?;
    let ffn = b.norm("post_ffw_norm", ffn)?;
    Ok(b.residual("l_out", ffn, x))
}

/// x + norm(attention(norm(x))), then x + norm(ffn(norm(x))) (CogView, arXiv 2105.13290).
pub(crate) fn sandwich_norm(b: &mut Builder<'_>, x: Tensor, attention: Part, ffn: Part) -> Result<Tensor> {
    let x = attention_between_norms(b, x, attention)?; // [n_embd, n]

    let h = b.norm("ffn_norm", x)?;
    let ffn = ffn(b, h)?;
    let ffn = b.norm("post_ffw_norm", ffn)?;
    Ok(b.residual("l_out", ffn, x))
}

/// x + norm(attention(norm(x))): [n_embd, n], in the last layer the outputs alone.
pub(crate) fn attention_between_norms(b: &mut Builder<'_>, x: Tensor, attention: Part) -> Result<Tensor> {
    let h = b.norm("attn_norm", x)?; // [n_embd, n_tokens]
    let attn = attention(b, h)?; // [head_dim * n_head, n_tokens]
    let [attn, x] = b.keep_outputs([attn, x]); // [.., n]: in the last layer the outputs alone
    let attn = attention_output(b, attn)?; // [n_embd, n]
    let attn = b.norm("post_attention_norm", attn)?;
    Ok(b.residual("sa_out", attn, x))
}

/// x + attention(norm(x)) + ffn(norm(x)), of one norm (GPT-J).
pub(crate) fn parallel(b: &mut Builder<'_>, x: Tensor, attention: Part, ffn: Part) -> Result<Tensor> {
    let h = b.norm("attn_norm", x)?; // [n_embd, n_tokens]
    let attn = attention(b, h)?; // [head_dim * n_head, n_tokens]
    let [attn, h, x] = b.keep_outputs([attn, h, x]); // [.., n]: in the last layer the outputs alone
    let attn = attention_output(b, attn)?; // [n_embd, n]

    let ffn = ffn(b, h)?;
    let both = b.g.add(ffn, attn);
    Ok(b.residual("l_out", both, x))
}
