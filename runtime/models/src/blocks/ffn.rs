//! Dense feed-forward networks: [n_embd, n] to [n_ff, n] and back.

use crate::builder::Builder;
use crate::error::Result;
use llmrt_graph::{Activation, Tensor};

/// down(activation(gate(x)) · up(x)).
pub(crate) fn ffn_gated(b: &mut Builder<'_>, activation: Activation, x: Tensor) -> Result<Tensor> {
    let n_ff = b.layer().n_ff;
    let up = b.ffn_linear("ffn_up", n_ff, x)?;
    let gate = b.ffn_linear("ffn_gate", n_ff, x)?;
    let h = b.g.glu(activation, gate, Some(up)); // [n_ff, n]
    down(b, h)
}

/// As `ffn_gated`, with the rows of gate and up in one matrix, gate first.
pub(crate) fn ffn_fused(b: &mut Builder<'_>, activation: Activation, x: Tensor) -> Result<Tensor> {
    let gate_up = b.ffn_linear("ffn_up", 2 * b.layer().n_ff, x)?;
    let h = b.g.glu(activation, gate_up, None); // [n_ff, n]
    down(b, h)
}

/// down(activation(up(x))).
pub(crate) fn ffn_plain(b: &mut Builder<'_>, activation: Activation, x: Tensor) -> Result<Tensor> {
    let up = b.ffn_linear("ffn_up", b.layer().n_ff, x)?;
    let h = b.g.activation(activation, up); // [n_ff, n]
    down(b, h)
}

fn down(b: &mut Builder<'_>, h: Tensor) -> Result<Tensor> {
    let y = b.ffn_linear("ffn_down", b.cfg.n_embd, h)?;
    Ok(b.name(y, "ffn_out"))
}
