//! y_j = Σᵢ rᵢ (S_ij + uᵢ kᵢ v_j), then S_ij = wᵢ S_ij + kᵢ v_j.

use super::check::Answer;
use super::output::Tile;
use super::recurrence::{self, Place, columns};
use super::{Args, Output, Worker};
use crate::simd::{Simd, dispatch};
use llmrt_plugin::NodeView;
use std::ops::Range;

pub fn supports(node: &NodeView<'_>) -> Answer {
    recurrence::supports(node, 5, Some(3))
}

pub fn compute(w: &mut Worker<'_>, a: &Args, out: Output<'_>) {
    let whole = a.arg(0).ne[0]; // an output is a sum over rows
    recurrence::scan_heads(a, out, 5, whole, |place, tokens, state, y| {
        let first = w.scratch.floats[0].take(whole);
        run(w.isa, a, place, tokens, first, state, y);
    });
}

dispatch! {
    fn run(a: &Args, place: &Place, tokens: Range<usize>, first: &mut [f32], state: &mut [f32], y: &mut Tile<'_>)
        = run_with;
}

#[inline(always)]
fn run_with<S: Simd>(
    s: S,
    a: &Args,
    place: &Place,
    tokens: Range<usize>,
    first: &mut [f32],
    state: &mut [f32],
    y: &mut Tile<'_>,
) {
    let u = a.arg(3).row([place.block, 0, 0]);
    for token in tokens {
        let at = [place.block, token, 0];
        let [k, v, r, decay] = [a.arg(0).row(at), a.arg(1).row(at), a.arg(2).row(at), a.arg(4).row(at)];
        let y = y.row(at);
        columns::step::<S, true>(s, [k, v, r, decay], state, y);
        first.iter_mut().zip(u).zip(k).for_each(|((first, u), k)| *first = u * k);
        let now = recurrence::dot(s, first, r);
        y.iter_mut().zip(v).for_each(|(y, v)| *y += now * v);
    }
}
