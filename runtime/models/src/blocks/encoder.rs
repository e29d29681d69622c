//! Encoders: tokens to hidden states, through layers whose attention sees what comes after a token, too.

use super::{attention_output, decoder::Part, token_embedding};
use crate::builder::Builder;
use crate::error::Result;
use llmrt_graph::Tensor;

/// Hidden states [n_embd, n_outputs] of tokens that run through a block for each layer and a last norm.
pub(crate) fn encoder(
    b: &mut Builder<'_>,
    last_norm: &str,
    block: impl Fn(&mut Builder<'_>, Tensor) -> Result<Tensor>,
) -> Result<Tensor> {
    let x = token_embedding(b)?; // [n_embd, n_tokens]
    let x = b.layers(x, block)?; // [n_embd, n_outputs]
    b.norm(last_norm, x)
}

/// norm(x + attention(x)), then norm(x + ffn(x)) (arXiv 1706.03762). Files of code models have a second norm after attention,
/// of its result plus x once more.
pub(crate) fn norm_of_sum(b: &mut Builder<'_>, x: Tensor, attention: Part, ffn: Part) -> Result<Tensor> {
    let attn = attention(b, x)?; // [head_dim * n_head, n_tokens]
    let [attn, x] = b.keep_outputs([attn, x]); // [.., n]: in the last layer the outputs alone
    let attn = attention_output(b, attn)?; // [n_embd, n]
    let mut h = normed_sum(b, "attn_output_norm", attn, x)?;
    if b.has("attn_norm_2.weight") {
        h = normed_sum(b, "attn_norm_2", h, x)?;
    }

    let ffn = ffn(b, h)?;
    normed_sum(b, "layer_output_norm", ffn, h)
}

fn normed_sum(b: &mut Builder<'_>, norm: &str, y: Tensor, x: Tensor) -> Result<Tensor> {
    let sum = b.g.add(y, x);
    b.norm(norm, sum)
}
