//! From hidden states to logits.

use crate::builder::Builder;
use crate::error::Result;
use llmrt_graph::{Role, Tensor};

/// The last norm, then a logit for each token of the vocabulary: [n_vocab, n_outputs]. A file without an output
/// matrix uses its token embedding once more.
pub(crate) fn head(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    let x = b.norm("output_norm", x)?; // [n_embd, n_outputs]
    let x = b.name(x, "result_norm");
    logits(b, x)
}

/// Logits of normed hidden states, times the model's factor on them. In steps without logits: the hidden states.
pub(crate) fn logits(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    if !b.gives_logits() {
        return Ok(x);
    }
    b.hidden = Some(x);
    let logits = match b.has("output.weight") {
        true => b.linear("output", b.cfg.n_vocab, x)?,
        false => {
            let dims = [b.cfg.n_embd, b.cfg.n_vocab];
            let table = b.weight("token_embd.weight", &dims, Role::Embedding)?;
            b.g.mul_mat(table, x)
        }
    };
    let logits = match b.cfg.scales.logits {
        1.0 => logits,
        scale => b.g.scale(logits, scale),
    };
    Ok(softcap(b, logits, b.cfg.final_softcap))
}

/// c · tanh(x / c); x itself if c is 0.
pub(super) fn softcap(b: &mut Builder<'_>, x: Tensor, c: f32) -> Tensor {
    if c == 0.0 {
        return x;
    }
    let x = b.g.scale(x, c.recip());
    let x = b.g.tanh(x);
    b.g.scale(x, c)
}
