//! Dense feed-forward networks: [n_embd, n] to [n_ff, n] and back.

mod neurons;

pub(crate) use neurons::{gated_neurons, is_by_neurons, plain_neurons};

use super::linear::Product;
use super::moe::moe;
use crate::builder::Builder;
use crate::config::SparseMode;
use crate::error::{Error, Result};
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
    down(b, activation, h)
}

/// As `ffn_gated`, with the rows of gate and up in one matrix, gate first.
pub(crate) fn ffn_fused(b: &mut Builder<'_>, activation: Activation, x: Tensor) -> Result<Tensor> {
    let gate_up = b.ffn_linear("ffn_up", 2 * b.layer().n_ff, x)?;
    let h = b.g.glu(activation, gate_up, None); // [n_ff, n]
    down(b, activation, h)
}

/// down(activation(up(x))).
pub(crate) fn ffn_plain(b: &mut Builder<'_>, activation: Activation, x: Tensor) -> Result<Tensor> {
    let up = b.ffn_linear("ffn_up", b.layer().n_ff, x)?;
    let h = b.g.activation(activation, up); // [n_ff, n]
    down(b, activation, h)
}

/// down(max(up(x), 0)²) (Primer, arXiv 2109.08668).
pub(crate) fn ffn_squared_relu(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    let up = b.ffn_linear("ffn_up", b.layer().n_ff, x)?;
    let h = relu_squared(b, up); // [n_ff, n]
    down(b, Activation::Relu, h)
}

/// max(x, 0)².
pub(super) fn relu_squared(b: &mut Builder<'_>, x: Tensor) -> Tensor {
    let x = b.g.relu(x);
    b.g.sqr(x)
}

/// The last matrix, which multiplies mostly zeros after a ReLU.
fn down(b: &mut Builder<'_>, activation: Activation, h: Tensor) -> Result<Tensor> {
    let product = match (activation, b.cfg.neurons.options.mode) {
        (Activation::Relu, SparseMode::Predict) => return Err(Error::NoPredictors { layer: b.il() }),
        (Activation::Relu, SparseMode::Auto | SparseMode::Exact) => Product::Zeros,
        _ => Product::Dense,
    };
    let y = b.ffn_product("ffn_down", b.cfg.n_embd, h, product)?;
    Ok(b.name(y, "ffn_out"))
}
