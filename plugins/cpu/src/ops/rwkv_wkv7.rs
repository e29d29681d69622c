//! S_ij = w_j S_ij + vᵢ k_j + (Σₗ S_il aₗ) b_j, then yᵢ = Σ_j S_ij r_j.

use super::check::Answer;
use super::output::Tile;
use super::recurrence::rows::{self, Change, STRIP};
use super::recurrence::{self, Place, RUN, UNIT};
use super::{Args, Output, Worker};
use crate::simd::{Simd, dispatch};
use llmrt_plugin::NodeView;
use std::ops::Range;

pub fn supports(node: &NodeView<'_>) -> Answer {
    recurrence::supports(node, 6, None)
}

pub fn compute(w: &mut Worker<'_>, a: &Args, out: Output<'_>) {
    let isa = w.isa;
    let faded = w.scratch.floats[0].take::<f32>(RUN * a.arg(0).ne[0]);
    recurrence::scan_heads(a, out, 6, UNIT, |place, tokens, state, y| {
        for tokens in recurrence::runs(tokens) {
            run(isa, a, place, tokens, faded, state, y);
        }
    });
}

/// A head's operands at a token.
#[derive(Clone, Copy, Default)]
struct Token<'a> {
    w: &'a [f32],
    k: &'a [f32],
    v: &'a [f32],
    a: &'a [f32],
    b: &'a [f32],
    /// w·r, element by element.
    faded: &'a [f32],
    /// k·r.
    kr: f32,
    /// b·r.
    br: f32,
}

/// What a token makes of the state.
struct Update<'a> {
    of: Token<'a>,
    v: [f32; STRIP],
    removed: [f32; STRIP],
}

impl<S: Simd> Change<S> for Update<'_> {
    type Row = [S::F; 2];
    type Column = [S::F; 3];

    #[inline(always)]
    fn row(&self, s: S, i: usize) -> [S::F; 2] {
        [s.splat(self.v[i]), s.splat(self.removed[i])]
    }
    #[inline(always)]
    fn column<const FULL: bool>(&self, s: S, start: usize) -> [S::F; 3] {
        [
            rows::vector::<S, FULL>(s, self.of.w, start),
            rows::vector::<S, FULL>(s, self.of.k, start),
            rows::vector::<S, FULL>(s, self.of.b, start),
        ]
    }
    #[inline(always)]
    fn apply(s: S, [v, removed]: [S::F; 2], [w, k, b]: [S::F; 3], elements: S::F) -> S::F {
        s.fma(elements, w, s.fma(removed, b, s.mul(v, k)))
    }
}

dispatch! {
    fn run(a: &Args, place: &Place, tokens: Range<usize>, faded: &mut [f32], state: &mut [f32], y: &mut Tile<'_>)
        = run_with;
}

/// At most [`RUN`] tokens. With the state before a token, yᵢ = Σ_j S_ij w_j r_j + vᵢ k·r + (Σₗ S_il aₗ) b·r, so that both sums
/// take one pass.
#[inline(always)]
fn run_with<S: Simd>(
    s: S,
    args: &Args,
    place: &Place,
    tokens: Range<usize>,
    faded: &mut [f32],
    state: &mut [f32],
    y: &mut Tile<'_>,
) {
    let width = args.arg(0).ne[0];
    let mut all = [Token::default(); RUN];
    for ((token, to), faded) in tokens.clone().zip(&mut all).zip(faded.chunks_exact_mut(width)) {
        let row = |i: usize| args.arg(i).row([place.block, token, 0]);
        let (r, w, k, v, a, b) = (row(0), row(1), row(2), row(3), row(4), row(5));
        faded.iter_mut().zip(w).zip(r).for_each(|((to, w), r)| *to = w * r);
        let (kr, br) = (recurrence::dot(s, k, r), recurrence::dot(s, b, r));
        *to = Token { w, k, v, a, b, faded, kr, br };
    }
    for (strip, state) in state.chunks_mut(STRIP * width).enumerate() {
        let first = place.rows.start + strip * STRIP;
        let rows = first..(first + STRIP).min(place.rows.end);
        let mut before: Option<Update<'_>> = None;
        for (token, now) in tokens.clone().zip(&all) {
            let vectors = [now.a, now.faded];
            let [removed, of_r] = match before {
                Some(update) => rows::products(s, &update, vectors, state),
                None => rows::products(s, &(), vectors, state),
            };
            let v = s.load_part(&now.v[rows.clone()]);
            let outputs = s.fma(removed, s.splat(now.br), s.fma(v, s.splat(now.kr), of_r));
            s.store_part(outputs, y.part([place.block, token, 0], rows.clone()));
            let mut update = Update { of: *now, v: [0.0; STRIP], removed: [0.0; STRIP] };
            s.store(v, &mut update.v);
            s.store(removed, &mut update.removed);
            before = Some(update);
        }
        if let Some(update) = before {
            rows::change(s, &update, width, state);
        }
    }
}
