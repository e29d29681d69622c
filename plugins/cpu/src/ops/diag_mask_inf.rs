//! y[i, j] = x[i, j], -inf where i > n_past + j.

use super::check::{self, Answer};
use super::moves::{self, Element};
use super::{Args, Output, Worker};
use llmrt_plugin::abi::op::DiagMaskParams;
use llmrt_plugin::{NodeView, Reason};

pub fn supports(node: &NodeView<'_>) -> Answer {
    check::params(DiagMaskParams::from_bytes(node.params_bytes()))?;
    let x = check::numbers(node, 0)?;
    check::result(node, x.dtype().ok_or(Reason::Type)?, x.ne())
}

pub fn compute(w: &mut Worker<'_>, a: &Args, out: Output<'_>) {
    masked(w, a, out, f32::NEG_INFINITY);
}

/// x, past the diagonal `value`.
pub fn masked(w: &Worker<'_>, a: &Args, out: Output<'_>, value: f32) {
    let n_past = a.params(DiagMaskParams::from_bytes).n_past as usize;
    let (n, value) = (a.dst.ne[0], Element::new(w.isa, a.dst.dtype, value));
    moves::each_row(a, out, |mut y, at| {
        let kept = n_past.saturating_add(at[0] + 1).min(n);
        y.copy(0, a.arg(0), at, 0, kept);
        y.fill(kept..n, &value);
    });
}
