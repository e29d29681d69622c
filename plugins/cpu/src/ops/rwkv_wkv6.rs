//! y_j = Σᵢ rᵢ (S_ij + uᵢ kᵢ v_j), then S_ij = wᵢ S_ij + kᵢ v_j.

use super::check::Answer;
use super::{Args, Output, Worker, recurrence};
use crate::simd::{Simd, dispatch};
use llmrt_plugin::NodeView;

pub fn supports(node: &NodeView<'_>) -> Answer {
    recurrence::supports(node, 5, Some(3))
}

pub fn compute(w: &mut Worker<'_>, a: &Args, out: Output<'_>) {
    recurrence::scan(a, out, 5, |at, state, y| {
        let [k, v, r, decay] = [0, 1, 2, 4].map(|i| a.arg(i).row(at));
        let first = a.arg(3).row([at[0], 0, 0]);
        step(w.isa, [k, v, r, first, decay], state, y);
    });
}

dispatch! {
    fn step(x: [&[f32]; 5], state: &mut [f32], y: &mut [f32]) = step_with;
}

#[inline(always)]
fn step_with<S: Simd>(_: S, [k, v, r, first, decay]: [&[f32]; 5], state: &mut [f32], y: &mut [f32]) {
    y.fill(0.0);
    for (i, row) in state.chunks_exact_mut(y.len()).enumerate() {
        let (k, r, first, decay) = (k[i], r[i], first[i], decay[i]);
        for ((old, y), v) in row.iter_mut().zip(&mut *y).zip(v) {
            let kv = k * v;
            *y += r * (*old + first * kv);
            *old = *old * decay + kv;
        }
    }
}
