//! From hidden states to scores: rerankers and classifiers.

use super::attention::{cached_rows, paged};
use crate::builder::Builder;
use crate::cache::{PagedLayer, ValueRows};
use crate::error::Result;
use llmrt_abi::op::AttentionParams;
use llmrt_graph::{Activation, Role, Tensor};

/// Scores [n_scores, n_outputs] of hidden states [n_embd, n_outputs]: a matrix with tanh after it, if the file has one, then the
/// output matrix. Of models that take a text's mean, hidden states are those of all tokens ([`Builder::outputs`]).
pub(crate) fn classifier(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    let config = b.cfg.classifier;
    let mut x = x;
    if config.takes_mean() {
        let past_last = b.cfg.n_layer..b.cfg.n_layer + 1;
        x = b.layers_in(past_last, x, mean_of_text)?; // [n_embd, n_tokens]
        x = b.rows_of_outputs(x);
    }
    let hidden = b.dims("cls.weight");
    if let Some([_, n, ..]) = hidden {
        x = b.linear("cls", n, x)?;
        x = if config.has_gelu { b.g.activation(Activation::Gelu, x) } else { b.g.tanh(x) };
        if b.has("cls.norm.weight") {
            x = b.norm("cls.norm", x)?;
        }
    }
    if hidden.is_none() || b.has("cls.output.weight") {
        x = b.linear("cls.output", config.n_scores, x)?;
    }
    Ok(if config.has_softmax { b.g.soft_max(x, None, 1.0) } else { x })
}

/// The mean of the hidden states [n_embd, n_tokens] that each token sees, its own included: attention in which all keys weigh
/// the same. It is a layer of its own, whose cached rows are keys and values.
fn mean_of_text(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    let (il, n_embd, heads) = (b.il(), b.cfg.n_embd, n_heads(b));
    b.add_paged(PagedLayer { il, k_row: n_embd, v: ValueRows::ViewOfK(0..n_embd) }, 0);
    let x = b.g.split_heads(x, heads); // [n_embd / heads, heads, n_tokens]
    let cache = cached_rows(b, 0, Role::KCache, x, n_embd / heads, n_embd)?;
    let paged = paged(b, 0);
    let params = AttentionParams {
        n_kv_heads: heads as u32,
        block_size: b.batch.block_size as u32,
        bidirectional: u32::from(!b.cfg.is_causal),
        scale: 0.0,
        ..AttentionParams::default()
    };
    let y = b.g.attention(x, cache, cache, &paged, &params);
    Ok(b.name(y, "text_mean"))
}

/// Heads into which hidden states are cut: as many as the first layer has, where these divide them.
fn n_heads(b: &Builder<'_>) -> u64 {
    let n_head = b.cfg.layers.first().map_or(1, |layer| layer.n_head);
    if n_head > 0 && b.cfg.n_embd.is_multiple_of(n_head) { n_head } else { 1 }
}
