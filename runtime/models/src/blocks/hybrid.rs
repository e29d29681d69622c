//! Hybrids: what mixes tokens, attention or a recurrence, differs from layer to layer.

use super::{attention_output, decoder::Part};
use crate::builder::Builder;
use crate::error::Result;
use llmrt_graph::Tensor;

/// Mixes the tokens of `h`, the normed residual stream `x`: the result and `x`, [n_embd, n], in the last layer the outputs
/// alone.
pub(crate) type Mixer = fn(&mut Builder<'_>, Tensor, Tensor) -> Result<[Tensor; 2]>;

/// x + mixer(norm(x)), then x + ffn(norm(x)): `recurrence` in layers without KV heads, `attention` in the others.
pub(crate) fn hybrid(
    b: &mut Builder<'_>,
    x: Tensor,
    recurrence: Mixer,
    attention: Mixer,
    ffn: Part,
) -> Result<Tensor> {
    mix_and_feed(b, x, if b.layer().is_recurrent() { recurrence } else { attention }, ffn)
}

/// x + mixer(norm(x)), then x + ffn(norm(x)).
pub(crate) fn mix_and_feed(
    b: &mut Builder<'_>,
    x: Tensor,
    mixer: impl Fn(&mut Builder<'_>, Tensor, Tensor) -> Result<[Tensor; 2]>,
    ffn: Part,
) -> Result<Tensor> {
    let h = b.norm("attn_norm", x)?; // [n_embd, n_tokens]
    let [y, x] = mixer(b, h, x)?; // [n_embd, n]: in the last layer the outputs alone
    let x = b.residual("ffn_inp", y, x);

    let h = b.norm(b.cfg.ffn_norm, x)?;
    let ffn = ffn(b, h)?;
    Ok(b.residual("l_out", ffn, x))
}

/// Attention as a mixer.
pub(crate) fn mix_by_attention(
    b: &mut Builder<'_>,
    h: Tensor,
    x: Tensor,
    attention: Part,
) -> Result<[Tensor; 2]> {
    let attn = attention(b, h)?; // [head_dim * n_head, n_tokens]
    let [attn, x] = b.keep_outputs([attn, x]);
    Ok([attention_output(b, attn)?, x])
}
