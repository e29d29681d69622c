//! What becomes of a gate and of what it lets through.

use super::head::softcap;
use crate::builder::Builder;
use crate::config::Glu;
use llmrt_graph::{Activation, Tensor};

/// gpt-oss (arXiv 2508.10925): the factor in the gate's sigmoid, and the bounds.
const OAI_ALPHA: f32 = 1.702;
const OAI_LIMIT: f32 = 7.0;

/// Gate and up, in one of these ways. Without `up`, the first half of gate's rows is the gate.
pub(super) fn glu(b: &mut Builder<'_>, glu: &Glu, gate: Tensor, up: Option<Tensor>) -> Tensor {
    let limit_of = |limits: &[f32], il: usize| limits.get(il).copied().unwrap_or(0.0);
    let (limit, is_late) = match glu {
        Glu::Plain(activation) => return b.g.glu(*activation, gate, up),
        Glu::Oai => return b.g.swiglu_oai(gate, up, OAI_ALPHA, OAI_LIMIT),
        Glu::SoftBounded { beta, linear_beta } => return soft_bounded(b, *beta, *linear_beta, gate, up),
        Glu::BoundedGate(limits) => (limit_of(limits, b.il()), false),
        Glu::BoundedSilu(limits) => (limit_of(limits, b.il()), true),
    };
    if limit <= 0.0 {
        return b.g.glu(Activation::Silu, gate, up);
    }
    let (gate, up) = halves(b, gate, up);
    let up = b.g.clamp(up, -limit, limit);
    if !is_late {
        let gate = b.g.clamp(gate, f32::NEG_INFINITY, limit);
        return b.g.glu(Activation::Silu, gate, Some(up));
    }
    let gate = b.g.silu(gate);
    let gate = b.g.clamp(gate, f32::NEG_INFINITY, limit);
    b.g.mul(gate, up)
}

fn soft_bounded(
    b: &mut Builder<'_>,
    beta: f32,
    linear_beta: f32,
    gate: Tensor,
    up: Option<Tensor>,
) -> Tensor {
    let (gate, up) = halves(b, gate, up);
    let soft = soft_bound(b, beta, gate);
    let gated = b.g.glu(Activation::Sigmoid, gate, Some(soft));
    let up = soft_bound(b, linear_beta, up);
    b.g.mul(gated, up)
}

fn soft_bound(b: &mut Builder<'_>, c: f32, x: Tensor) -> Tensor {
    if c <= 0.0 { x } else { softcap(b, x, c) }
}

fn halves(b: &mut Builder<'_>, gate: Tensor, up: Option<Tensor>) -> (Tensor, Tensor) {
    let n_ff = b.g.ne(gate)[0] / 2;
    match up {
        Some(up) => (gate, up),
        None => (b.g.slice(gate, 0, 0, n_ff), b.g.slice(gate, 0, n_ff, n_ff)),
    }
}
