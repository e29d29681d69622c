//! FFNs most of whose neurons give zeros: of each token those that may not are computed.
//!
//! A gate is computed whole, and what it multiplies only where it is positive. A predictor (Deja Vu, arXiv 2310.17157;
//! PowerInfer, 2312.12456) is a small network that reads the residual stream and picks the neurons beforehand. Files of
//! PowerInfer have the last matrix by neurons (`ffn_down_t`), in which those that give zeros are rows that are not read.

use super::relu_squared;
use crate::blocks::linear::Product;
use crate::builder::Builder;
use crate::config::{HiddenActivation, SparseMode};
use crate::error::{Error, Result};
use llmrt_graph::{Activation, Pick, Role, Tensor};

/// Scores of the neurons of each token, [n_ff, n], and the rule by which they pass.
type Scores = Option<(Tensor, Pick)>;

/// Neurons of a gated FFN: `x` [n_embd, n] is its input, `residual` what a predictor reads. Without a name in the file the
/// activation is `usual`.
pub(crate) fn gated_neurons(
    b: &mut Builder<'_>,
    usual: HiddenActivation,
    x: Tensor,
    residual: Tensor,
) -> Result<Tensor> {
    let activation = activation(b, usual);
    let (mode, scores) = picked(b, activation, residual)?;
    let n_ff = b.layer().n_ff;
    let (gate, up) = match mode {
        SparseMode::Off => {
            let up = b.ffn_linear("ffn_up", n_ff, x)?;
            (b.ffn_linear("ffn_gate", n_ff, x)?, up)
        }
        _ => {
            let gate = b.ffn_product("ffn_gate", n_ff, x, rows(scores))?;
            // A gate that a predictor left out is 0, so this rule has both.
            let open = Product::Rows(gate, Pick::Above(0.0));
            (gate, b.ffn_product("ffn_up", n_ff, x, open)?)
        }
    };
    let h = match activation {
        HiddenActivation::Silu => b.g.glu(Activation::Silu, gate, Some(up)),
        HiddenActivation::Relu => b.g.glu(Activation::Relu, gate, Some(up)),
        HiddenActivation::Drelu => {
            let up = b.g.relu(up);
            b.g.glu(Activation::Relu, gate, Some(up))
        }
        HiddenActivation::ReluSquared => {
            let gate = relu_squared(b, gate);
            b.g.mul(gate, up)
        }
    }; // [n_ff, n]
    let has_bias = ["ffn_gate.bias", "ffn_up.bias"].iter().any(|name| b.has(name));
    down(b, mode, h, scores.filter(|_| has_bias))
}

/// Neurons of an FFN without a gate. Without a name in the file the activation is ReLU.
pub(crate) fn plain_neurons(b: &mut Builder<'_>, x: Tensor, residual: Tensor) -> Result<Tensor> {
    let activation = activation(b, HiddenActivation::Relu);
    let (mode, scores) = picked(b, activation, residual)?;
    let up = b.ffn_product("ffn_up", b.layer().n_ff, x, rows(scores))?;
    let h = match activation {
        HiddenActivation::Silu => b.g.silu(up),
        HiddenActivation::Relu | HiddenActivation::Drelu => b.g.relu(up),
        HiddenActivation::ReluSquared => relu_squared(b, up),
    }; // [n_ff, n]
    let has_bias = b.has("ffn_up.bias");
    down(b, mode, h, scores.filter(|_| has_bias))
}

/// Whether the layer's last matrix is stored by neurons, as in files of PowerInfer.
pub(crate) fn is_by_neurons(b: &Builder<'_>) -> bool {
    b.has("ffn_down_t.weight")
}

/// By the file's name of it. Files of PowerInfer have none: there it is ReLU, where it would be SiLU.
fn activation(b: &Builder<'_>, usual: HiddenActivation) -> HiddenActivation {
    let of_file = b.cfg.neurons.activation;
    of_file.unwrap_or(match usual {
        HiddenActivation::Silu if is_by_neurons(b) => HiddenActivation::Relu,
        usual => usual,
    })
}

/// Which neurons are computed, and the scores of a predictor that picks them. The mode is not `Auto`.
fn picked(
    b: &mut Builder<'_>,
    activation: HiddenActivation,
    residual: Tensor,
) -> Result<(SparseMode, Scores)> {
    let has_zeros = activation != HiddenActivation::Silu;
    let has_predictor = b.has("fc1.weight") && is_by_neurons(b);
    let mode = match b.cfg.neurons.options.mode {
        _ if !has_zeros => SparseMode::Off,
        SparseMode::Auto if has_predictor => SparseMode::Predict,
        SparseMode::Auto => SparseMode::Exact,
        SparseMode::Predict if !has_predictor => {
            return Err(Error::NoPredictors { layer: b.il() });
        }
        SparseMode::Magnitude => SparseMode::Off,
        mode => mode,
    };
    let scores = match mode {
        SparseMode::Predict => {
            let threshold = b.cfg.neurons.threshold();
            Some((predicted(b, residual)?, Pick::NotBelow(threshold)))
        }
        _ => None,
    };
    Ok((mode, scores))
}

/// fc2 · relu(fc1 · residual): [n_ff, n].
fn predicted(b: &mut Builder<'_>, residual: Tensor) -> Result<Tensor> {
    let rank = b.dims("fc1.weight").map_or(0, |ne| ne[1]);
    let hidden = b.matmul("fc1", rank, residual)?;
    let hidden = b.g.relu(hidden);
    b.matmul("fc2", b.layer().n_ff, hidden)
}

fn rows(scores: Scores) -> Product {
    scores.map_or(Product::Dense, |(scores, pick)| Product::Rows(scores, pick))
}

/// The sum of the neurons of `h` [n_ff, n] times their rows or columns: [n_embd, n]. With scores, of those that pass.
fn down(b: &mut Builder<'_>, mode: SparseMode, h: Tensor, scores: Scores) -> Result<Tensor> {
    let n_embd = b.cfg.n_embd;
    let y = match is_by_neurons(b) {
        true => {
            let w = b.weight("ffn_down_t.weight", &[n_embd, b.layer().n_ff], Role::Matrix)?;
            let y = b.g.mul_mat_t(w, h, scores);
            let bias = b.optional("ffn_down_t.bias", &[n_embd], Role::Bias)?;
            bias.map_or(y, |bias| b.g.add(y, bias))
        }
        false => {
            let product = if mode == SparseMode::Off { Product::Dense } else { Product::Zeros };
            b.ffn_product("ffn_down", n_embd, h, product)?
        }
    };
    Ok(b.name(y, "ffn_out"))
}
