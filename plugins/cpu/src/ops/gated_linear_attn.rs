//! S_ij = gᵢ S_ij + kᵢ v_j, then y_j = scale · Σᵢ qᵢ S_ij.

use super::check::{self, Answer};
use super::{Args, Output, Worker, recurrence};
use crate::simd::{Simd, dispatch};
use llmrt_plugin::NodeView;
use llmrt_plugin::abi::op::GatedLinearAttnParams;

pub fn supports(node: &NodeView<'_>) -> Answer {
    check::params(GatedLinearAttnParams::from_bytes(node.params_bytes()))?;
    recurrence::supports(node, 4, None)
}

pub fn compute(w: &mut Worker<'_>, a: &Args, out: Output<'_>) {
    let scale = a.params(GatedLinearAttnParams::from_bytes).scale;
    recurrence::scan(a, out, 4, |at, state, y| {
        step(w.isa, std::array::from_fn(|i| a.arg(i).row(at)), state, y);
        y.iter_mut().for_each(|y| *y *= scale);
    });
}

dispatch! {
    fn step(x: [&[f32]; 4], state: &mut [f32], y: &mut [f32]) = step_with;
}

#[inline(always)]
fn step_with<S: Simd>(_: S, [k, v, q, g]: [&[f32]; 4], state: &mut [f32], y: &mut [f32]) {
    y.fill(0.0);
    for (i, row) in state.chunks_exact_mut(y.len()).enumerate() {
        let (k, q, g) = (k[i], q[i], g[i]);
        for ((old, y), v) in row.iter_mut().zip(&mut *y).zip(v) {
            *old = *old * g + k * v;
            *y += q * *old;
        }
    }
}
