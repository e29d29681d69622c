//! S_ij = gᵢ S_ij + kᵢ v_j, then y_j = scale · Σᵢ qᵢ S_ij.

use super::check::{self, Answer};
use super::output::Tile;
use super::recurrence::{self, Place, columns};
use super::{Args, Output, Worker};
use crate::simd::{Simd, dispatch};
use llmrt_plugin::NodeView;
use llmrt_plugin::abi::op::GatedLinearAttnParams;
use std::ops::Range;

pub fn supports(node: &NodeView<'_>) -> Answer {
    check::params(GatedLinearAttnParams::from_bytes(node.params_bytes()))?;
    recurrence::supports(node, 4, None)
}

pub fn compute(w: &mut Worker<'_>, a: &Args, out: Output<'_>) {
    let scale = a.params(GatedLinearAttnParams::from_bytes).scale;
    let whole = a.arg(0).ne[0]; // an output is a sum over rows
    recurrence::scan_heads(a, out, 4, whole, |place, tokens, state, y| {
        run(w.isa, a, scale, place, tokens, state, y);
    });
}

dispatch! {
    fn run(a: &Args, scale: f32, place: &Place, tokens: Range<usize>, state: &mut [f32], y: &mut Tile<'_>) = run_with;
}

#[inline(always)]
fn run_with<S: Simd>(
    s: S,
    a: &Args,
    scale: f32,
    place: &Place,
    tokens: Range<usize>,
    state: &mut [f32],
    y: &mut Tile<'_>,
) {
    for token in tokens {
        let at = [place.block, token, 0];
        let [k, v, q, g] = [a.arg(0).row(at), a.arg(1).row(at), a.arg(2).row(at), a.arg(3).row(at)];
        let y = y.row(at);
        columns::step::<S, false>(s, [k, v, q, g], state, y);
        y.iter_mut().for_each(|y| *y *= scale);
    }
}
