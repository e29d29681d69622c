//! From hidden states to scores: rerankers and classifiers.

use crate::builder::Builder;
use crate::error::Result;
use llmrt_graph::{Activation, Tensor};

/// Scores [n_scores, n] of hidden states [n_embd, n]: a matrix with tanh after it, if the file has one, then the output matrix.
pub(crate) fn classifier(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    let config = b.cfg.classifier;
    let mut x = x;
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
