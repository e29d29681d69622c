//! Lightning attention (arXiv 2401.04658): linear attention whose state fades at a rate that each head and layer has.

use super::recurrent::{outputs_and_states, sequences};
use crate::builder::Builder;
use crate::cache::StateTensor;
use crate::error::Result;
use llmrt_graph::{Activation, Tensor};

/// Lightning attention of `h`, normed, gated, mixed, and `x`: [n_embd, n], in the last layer the outputs alone.
pub(crate) fn lightning_mixer(b: &mut Builder<'_>, h: Tensor, x: Tensor) -> Result<[Tensor; 2]> {
    let (n_head, head_dim, n_tokens) = (b.layer().n_head, b.cfg.head_dim_k, b.g.ne(h)[1]);
    let n_inner = head_dim * n_head;
    // Of each head Q, K and V.
    let qkv = b.matmul("attn_qkv", 3 * n_inner, h)?;
    let qkv = b.g.silu(qkv);
    let qkv = b.g.split_heads(qkv, n_head); // [3 * head_dim, n_head, n_tokens]
    let [q, k, v] = [0, 1, 2].map(|i| b.g.slice(qkv, 0, i * head_dim, head_dim));

    let [state] = b.states([StateTensor { name: "kv_state", row: head_dim * n_inner }]);
    let of = sequences(b);
    let fade = fade(b, [head_dim, n_head, n_tokens]);
    let both = b.g.gated_linear_attn_ragged(k, v, q, fade, state, of.reads, of.query_starts, 1.0);
    let y = outputs_and_states(b, both, state, &of, &[n_inner, n_tokens]);

    let [y, h, x] = b.keep_outputs([y, h, x]); // [.., n]
    let y = b.norm("attn_norm_2", y)?;
    let gate = b.matmul("attn_gate", n_inner, h)?;
    let y = b.g.glu(Activation::Sigmoid, gate, Some(y));
    Ok([b.matmul("attn_output", b.cfg.n_embd, y)?, x])
}

/// What states are multiplied with at each token: exp(-slope), slopes of heads h from 1 on 2^(-8h / n_head) as of ALiBi,
/// and smaller from layer to layer.
fn fade(b: &mut Builder<'_>, dims: [u64; 3]) -> Tensor {
    let n_head = dims[1];
    let (il, last) = (b.il() as f32, (b.cfg.n_layer - 1).max(1) as f32);
    let heads = b.g.arange(1.0, n_head as f32 + 1.0, 1.0);
    let logs = b.g.scale(heads, -8.0 * std::f32::consts::LN_2 / n_head as f32);
    let slopes = b.g.exp(logs);
    let slopes = b.g.scale(slopes, -(1.0 - il / last + 1e-5));
    let fade = b.g.exp(slopes);
    let fade = b.g.reshape(fade, &[1, n_head]);
    b.g.repeat(fade, &dims)
}
