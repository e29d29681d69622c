//! S_i: = exp(gᵢ) S_i:, then S += k ⊗ (v - Sᵀk)·β, then y = Sᵀq / √S, S transposed in memory. Threads share the
//! heads, and rows of heads; states are updated in the result.

use super::check::{self, Answer, ensure, product};
use super::output::Tile;
use super::ragged::{self, Sequences};
use super::recurrence::rows::{self, Change, STRIP};
use super::recurrence::{self, Place, RUN, States, UNIT};
use super::{Args, Output, Worker};
use crate::simd::{LANES, Simd, dispatch, math};
use crate::tensor::Tensor;
use llmrt_plugin::abi::op::StatesParams;
use llmrt_plugin::{DType, NodeView, Reason};
use std::ops::Range;

pub fn supports(node: &NodeView<'_>) -> Answer {
    let n_states = check::params(StatesParams::from_bytes(node.params_bytes()))?.n_states.max(1) as usize;
    let [s, h, n_tokens, n_batches] = check::floats(node, 2)?.ne();
    for i in [0, 1] {
        let ne = check::floats(node, i)?.ne();
        let fits =
            ne[0] == s && ne[2] == n_tokens && h.is_multiple_of(ne[1]) && n_batches.is_multiple_of(ne[3]);
        ensure(fits, Reason::Shape)?;
    }
    let g = check::floats(node, 3)?.ne();
    let n_gates = if g[0] == 1 { 1 } else { s };
    ensure(g == [n_gates, h, n_tokens, n_batches], Reason::Shape)?;
    ensure(check::floats(node, 4)?.ne() == [1, h, n_tokens, n_batches], Reason::Shape)?;
    let states = check::floats(node, 5)?.ne();
    let (n_slots, n_seqs) = match ragged::is(node, 6) {
        false => (n_batches, n_batches),
        true => {
            ensure(n_batches == 1 && n_states == 1, Reason::Param)?;
            (states[3], ragged::supports(node, 6)?)
        }
    };
    ensure(states == [s, s, h, n_slots], Reason::Shape)?;
    let n_outputs = product(&[n_tokens, n_batches])?;
    let n_rows = product(&[n_states, s, n_seqs])?.checked_add(n_outputs).ok_or(Reason::Shape)?;
    check::result(node, DType::F32, [product(&[s, h])?, n_rows, 1, 1])
}

pub fn compute(w: &mut Worker<'_>, a: &Args, out: Output<'_>) {
    let n_states = a.params(StatesParams::from_bytes).n_states.max(1) as usize;
    let ([s, h, n_tokens, n_batches], states) = (a.arg(2).ne, a.arg(5));
    let n_tokens = n_tokens * n_batches;
    let sequences = Sequences::bind(a, 6, n_tokens, states.ne[3]);
    let of = States { n_rows: s, n_unit: UNIT, width: s, n_blocks: h, n_tokens, n_states };
    let begin = |place: &Place, slot: usize, state: &mut [f32]| begin(states, place, slot, state);
    let isa = w.isa;
    let gates = w.scratch.floats[0].take::<f32>(RUN * a.arg(3).ne[0]);
    recurrence::scan(out, of, &sequences, begin, |place, tokens, state, y| {
        for tokens in recurrence::runs(tokens) {
            run(isa, a, place, tokens, gates, state, y);
        }
    });
}

/// The state that rows start from.
fn begin(states: &Tensor, place: &Place, slot: usize, state: &mut [f32]) {
    let rows = place.rows.clone().zip(state.chunks_exact_mut(states.ne[0].max(1)));
    rows.for_each(|(j, to)| to.copy_from_slice(states.row([j, place.block, slot])));
}

/// A head's operands at a token.
#[derive(Clone, Copy, Default)]
struct Token<'a> {
    q: &'a [f32],
    k: &'a [f32],
    v: &'a [f32],
    /// exp(g).
    gates: &'a [f32],
    beta: f32,
    /// k·q.
    kq: f32,
}

/// S_i: = gᵢ S_i:, of one g or one for each column in memory.
struct Fade<'a>(&'a [f32]);

impl<S: Simd> Change<S> for Fade<'_> {
    type Row = ();
    type Column = S::F;

    #[inline(always)]
    fn row(&self, _: S, _: usize) {}
    #[inline(always)]
    fn column<const FULL: bool>(&self, s: S, start: usize) -> S::F {
        match self.0 {
            [gate] => s.splat(*gate),
            gates => rows::vector::<S, FULL>(s, gates, start),
        }
    }
    #[inline(always)]
    fn apply(s: S, (): (), gate: S::F, elements: S::F) -> S::F {
        s.mul(elements, gate)
    }
}

/// S += k ⊗ δ.
struct Add<'a> {
    k: &'a [f32],
    delta: [f32; STRIP],
}

impl<S: Simd> Change<S> for Add<'_> {
    type Row = S::F;
    type Column = S::F;

    #[inline(always)]
    fn row(&self, s: S, i: usize) -> S::F {
        s.splat(self.delta[i])
    }
    #[inline(always)]
    fn column<const FULL: bool>(&self, s: S, start: usize) -> S::F {
        rows::vector::<S, FULL>(s, self.k, start)
    }
    #[inline(always)]
    fn apply(s: S, delta: S::F, k: S::F, elements: S::F) -> S::F {
        s.fma(k, delta, elements)
    }
}

dispatch! {
    fn run(a: &Args, place: &Place, tokens: Range<usize>, gates: &mut [f32], state: &mut [f32], y: &mut Tile<'_>)
        = run_with;
}

/// At most [`RUN`] tokens. Sᵀq is computed as gSᵀq + δ k·q, with the same pass over the state as gSᵀk.
#[inline(always)]
fn run_with<S: Simd>(
    s: S,
    a: &Args,
    place: &Place,
    tokens: Range<usize>,
    gates: &mut [f32],
    state: &mut [f32],
    y: &mut Tile<'_>,
) {
    let (v, n_gates) = (a.arg(2), a.arg(3).ne[0]);
    let width = v.ne[0];
    let mut all = [Token::default(); RUN];
    for ((token, to), gates) in tokens.clone().zip(&mut all).zip(gates.chunks_exact_mut(n_gates)) {
        let at = [place.block, token % v.ne[2], token / v.ne[2]];
        exp(s, a.arg(3).row(at), gates);
        *to = token_of(s, a, at, gates);
    }
    let scale = s.splat((width as f32).sqrt());
    for (strip, state) in state.chunks_mut(STRIP * width).enumerate() {
        let first = place.rows.start + strip * STRIP;
        let rows = first..(first + STRIP).min(place.rows.end);
        let mut before: Option<Add<'_>> = None;
        for (token, now) in tokens.clone().zip(&all) {
            let vectors = [now.k, now.q];
            let [of_k, of_q] = match before {
                Some(add) => rows::products(s, &(add, Fade(now.gates)), vectors, state),
                None => rows::products(s, &Fade(now.gates), vectors, state),
            };
            let delta = s.mul(s.sub(s.load_part(&now.v[rows.clone()]), of_k), s.splat(now.beta));
            let outputs = s.div(s.fma(delta, s.splat(now.kq), of_q), scale);
            s.store_part(outputs, y.part([place.block, token, 0], rows.clone()));
            let mut add = Add { k: now.k, delta: [0.0; STRIP] };
            s.store(delta, &mut add.delta);
            before = Some(add);
        }
        if let Some(add) = before {
            rows::change(s, &add, width, state);
        }
    }
}

#[inline(always)]
fn token_of<'a, S: Simd>(s: S, a: &'a Args, at: [usize; 3], gates: &'a [f32]) -> Token<'a> {
    let (q, k, v) = (a.arg(0), a.arg(1), a.arg(2));
    let [head, token, batch] = at;
    let shared = |t: &Tensor| [head % t.ne[1], token, batch / (v.ne[3] / t.ne[3])];
    let (q, k) = (q.row(shared(q)), k.row(shared(k)));
    Token { q, k, v: v.row(at), gates, beta: a.arg(4).row(at)[0], kq: recurrence::dot(s, k, q) }
}

#[inline(always)]
fn exp<S: Simd>(s: S, g: &[f32], gates: &mut [f32]) {
    for (g, gates) in g.chunks(LANES).zip(gates.chunks_mut(LANES)) {
        s.store_part(math::exp(s, s.load_part(g)), gates);
    }
}
