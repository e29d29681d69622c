//! Attention with gated results (Qwen3-Next).

use super::attention::{attention_output, attention_to, part_of_heads, rope};
use crate::builder::Builder;
use crate::error::Result;
use llmrt_graph::{Activation, Tensor};

/// Attention whose result is gated, mixed, and `x`: [n_embd, n], in the last layer the outputs alone. Of each head Q's matrix
/// has the query, then the gate. `chosen` are the positions that queries see, as of `attention_to`.
pub(crate) fn gated_attention(
    b: &mut Builder<'_>,
    h: Tensor,
    x: Tensor,
    chosen: Option<Tensor>,
) -> Result<[Tensor; 2]> {
    let (layer, head_dim) = (b.layer(), b.cfg.head_dim_k);
    let both = b.linear("attn_q", 2 * head_dim * layer.n_head, h)?;
    let both = b.g.split_heads(both, layer.n_head); // [2 * head_dim, n_head, n_tokens]
    let q = b.g.slice(both, 0, 0, head_dim);
    let gate = part_of_heads(b, both, head_dim, head_dim);
    let [k, v] =
        [b.linear("attn_k", b.cfg.n_embd_k(b.il()), h)?, b.linear("attn_v", b.cfg.n_embd_v(b.il()), h)?]
            .map(|heads| b.g.split_heads(heads, layer.n_head_kv)); // [head_dim, n_head_kv, n_tokens]

    let (q, k) = (b.norm("attn_q_norm", q)?, b.norm("attn_k_norm", k)?);
    let (q, k) = (rope(b, "Qcur", q)?, rope(b, "Kcur", k)?);
    let attn = attention_to(b, q, k, v, chosen)?; // [head_dim * n_head, n_tokens]
    let [attn, gate, x] = b.keep_outputs([attn, gate, x]); // [.., n]: in the last layer the outputs alone
    let attn = b.g.glu(Activation::Sigmoid, gate, Some(attn));
    Ok([attention_output(b, attn)?, x])
}
