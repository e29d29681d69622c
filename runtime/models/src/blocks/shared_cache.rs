//! Layers that read the caches of earlier ones (Gemma 3n and 4), which cached for them too.

use super::attention::{attention_to_caches, cache_kv, queries, rope};
use crate::builder::Builder;
use crate::error::Result;
use llmrt_graph::Tensor;

/// Q, K and V, as `qkv` gives them.
type Qkv = fn(&mut Builder<'_>, Tensor) -> Result<(Tensor, Tensor, Tensor)>;

/// Attention of normed heads of Q, K and V, of which layers that read the caches of others have Q alone:
/// [head_dim * n_head, n_tokens].
pub(crate) fn attention_over_shared_caches(b: &mut Builder<'_>, x: Tensor, qkv: Qkv) -> Result<Tensor> {
    let q = match b.layer().cache_of {
        Some(_) => queries(b, x)?,
        None => {
            let (q, k, v) = qkv(b, x)?; // [head_dim, n_head or n_head_kv, n_tokens]
            let (k, v) = (b.norm("attn_k_norm", k)?, b.plain_norm("Vcur_normed", v));
            let k = rope(b, "Kcur", k)?;
            cache_kv(b, k, v)?;
            q
        }
    };
    let q = b.norm("attn_q_norm", q)?;
    let q = rope(b, "Qcur", q)?;
    attention_to_caches(b, q)
}
