//! Dense feed-forward networks: [n_embd, n] to [n_ff, n] and back.

use super::moe::moe;
use crate::builder::Builder;
use crate::error::Result;
use llmrt_graph::{Activation, Tensor};

/// down(silu(gate(x)) · up(x)).
pub(crate) fn swiglu(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    ffn_gated(b, Activation::Silu, x)
}

/// As `swiglu`, or its experts in MoE layers.
pub(crate) fn swiglu_or_experts(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    match b.layer().is_moe {
        true => moe(b, x),
        false => swiglu(b, x),
    }
}

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

/// down(max(up(x), 0)²) (Primer, arXiv 2109.08668).
pub(crate) fn ffn_squared_relu(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    let up = b.ffn_linear("ffn_up", b.layer().n_ff, x)?;
    let h = relu_squared(b, up); // [n_ff, n]
    down(b, h)
}

/// max(x, 0)².
pub(super) fn relu_squared(b: &mut Builder<'_>, x: Tensor) -> Tensor {
    let x = b.g.relu(x);
    b.g.sqr(x)
}

fn down(b: &mut Builder<'_>, h: Tensor) -> Result<Tensor> {
    let y = b.ffn_linear("ffn_down", b.cfg.n_embd, h)?;
    Ok(b.name(y, "ffn_out"))
}
