//! S_ij = w_j S_ij + vᵢ k_j + (Σₗ S_il aₗ) b_j, then yᵢ = Σ_j S_ij r_j.

use super::check::Answer;
use super::{Args, Output, Worker, recurrence};
use crate::simd::{Simd, dispatch};
use llmrt_plugin::NodeView;

pub fn supports(node: &NodeView<'_>) -> Answer {
    recurrence::supports(node, 6, None)
}

pub fn compute(w: &mut Worker<'_>, a: &Args, out: Output<'_>) {
    recurrence::scan(a, out, 6, |at, state, y| {
        step(w.isa, std::array::from_fn(|i| a.arg(i).row(at)), state, y);
    });
}

dispatch! {
    fn step(x: [&[f32]; 6], state: &mut [f32], y: &mut [f32]) = step_with;
}

#[inline(always)]
fn step_with<S: Simd>(s: S, [r, w, k, v, a, b]: [&[f32]; 6], state: &mut [f32], y: &mut [f32]) {
    for ((row, y), v) in state.chunks_exact_mut(y.len()).zip(y).zip(v) {
        let removed = recurrence::dot(s, row, a);
        for (((old, w), k), b) in row.iter_mut().zip(w).zip(k).zip(b) {
            *old = *old * w + v * k + removed * b;
        }
        *y = recurrence::dot(s, row, r);
    }
}
