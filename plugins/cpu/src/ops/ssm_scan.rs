//! h = exp(Δ·a)·h + Δ·x·b, then y = Σ h·c over the elements of the state, Δ = softplus(dt). Threads share
//! the heads, and rows of heads; states are updated in the result.

use super::check::{self, Answer, ensure, product};
use super::output::Tile;
use super::ragged::{self, Sequences};
use super::recurrence::rows::{STRIP, store, vector};
use super::recurrence::{self, Place, States, UNIT};
use super::{Args, Output, Worker};
use crate::simd::{LANES, Simd, array, dispatch, math};
use llmrt_plugin::abi::op::StatesParams;
use llmrt_plugin::{DType, NodeView, Reason};
use std::ops::Range;

pub fn supports(node: &NodeView<'_>) -> Answer {
    let n_states = check::params(StatesParams::from_bytes(node.params_bytes()))?.n_states.max(1) as usize;
    let states = check::floats(node, 0)?.ne();
    let x = check::floats(node, 1)?.ne();
    let [dt, a, b, c] = [2, 3, 4, 5].map(|i| check::floats(node, i).map(|t| t.ne()));
    let (a, b) = (a?, b?);
    let ([head_dim, n_heads, n_tokens, n_batches], d_state) = (x, states[0]);
    let n_seqs = match node.src(7) {
        None => n_batches,
        Some(_) => {
            ensure(n_batches == 1 && n_states == 1, Reason::Param)?;
            ragged::supports(node, 6)?
        }
    };
    let granular = if a[0] == 1 { 1 } else { d_state };
    ensure(states[1..3] == [head_dim, n_heads] && dt? == [n_heads, n_tokens, n_batches, 1], Reason::Shape)?;
    ensure(a == [granular, n_heads, 1, 1], Reason::Shape)?;
    ensure(
        b == [d_state, b[1], n_tokens, n_batches] && c? == b && n_heads.is_multiple_of(b[1]),
        Reason::Shape,
    )?;
    check::vector(&check::ints(node, 6)?, n_seqs)?;
    let n_kept = product(&[d_state, head_dim, n_heads, n_seqs, n_states])?;
    let n = product(&x)?.checked_add(n_kept).ok_or(Reason::Shape)?;
    check::result(node, DType::F32, [n, 1, 1, 1])
}

pub fn compute(w: &mut Worker<'_>, a: &Args, out: Output<'_>) {
    let n_states = a.params(StatesParams::from_bytes).n_states.max(1) as usize;
    let ([head_dim, n_heads, n_tokens, n_batches], states) = (a.arg(1).ne, a.arg(0));
    let (n_tokens, per_group) = (n_tokens * n_batches, n_heads / a.arg(4).ne[1]);
    let sequences = Sequences::bind(a, 6, n_tokens, states.ne[3]);
    let heads_are_rows = head_dim == 1;
    let [n_rows, n_unit] = if heads_are_rows { [per_group, STRIP] } else { [head_dim, UNIT] };
    let n_blocks = n_heads * head_dim / n_rows;
    let of = States { n_rows, n_unit, width: states.ne[0], n_blocks, n_tokens, n_states };
    let operands = Operands { a, per_group, heads_are_rows };
    let begin = |place: &Place, slot: usize, state: &mut [f32]| {
        for (row, to) in place.rows.clone().zip(state.chunks_exact_mut(states.ne[0].max(1))) {
            let [row, head] =
                if heads_are_rows { [0, place.block * n_rows + row] } else { [row, place.block] };
            to.copy_from_slice(states.row([row, head, slot]));
        }
    };
    recurrence::scan(out, of, &sequences, begin, |place, tokens, state, y| {
        run(w.isa, &operands, place, tokens, state, y);
    });
}

/// What a run of tokens reads.
struct Operands<'a> {
    a: &'a Args,
    /// Heads that share b and c.
    per_group: usize,
    /// Where heads have one row, those of a group are the rows of a block.
    heads_are_rows: bool,
}

/// A strip's numbers at a token, one for each row.
struct Strip<'a> {
    /// exp(Δ·a), or Δ where each element of a row has its own a.
    fades: [f32; STRIP],
    /// Each row's a, if each element has its own.
    a: [&'a [f32]; STRIP],
    /// Δ·x.
    x: [f32; STRIP],
    b: &'a [f32],
    c: &'a [f32],
}

dispatch! {
    fn run(of: &Operands<'_>, place: &Place, tokens: Range<usize>, state: &mut [f32], y: &mut Tile<'_>) = run_with;
}

#[inline(always)]
fn run_with<S: Simd>(
    s: S,
    of: &Operands<'_>,
    place: &Place,
    tokens: Range<usize>,
    state: &mut [f32],
    y: &mut Tile<'_>,
) {
    let (x, n_tokens) = (of.a.arg(1), of.a.arg(1).ne[2]);
    let width = of.a.arg(4).ne[0];
    for token in tokens {
        let (at, y) = ([token % n_tokens, token / n_tokens], y.row([place.block, token, 0]));
        if width == 0 {
            y.fill(0.0); // sums over no elements
        } else if of.heads_are_rows {
            strip(s, of.a.arg(3).ne[0] == 1, &of_heads(s, of, place, at), state, y);
        } else {
            let x = &x.row([place.block, at[0], at[1]])[place.rows.clone()];
            let (mut numbers, delta) = of_head(s, of, place.block, at);
            let strips = state.chunks_mut(STRIP * width).zip(y.chunks_mut(STRIP)).zip(x.chunks(STRIP));
            for ((state, y), x) in strips {
                s.store(s.mul(s.load_part(x), s.splat(delta)), &mut numbers.x);
                strip(s, of.a.arg(3).ne[0] == 1, &numbers, state, y);
            }
        }
    }
}

/// Rows of one head, but for their x, and Δ.
#[inline(always)]
fn of_head<'a, S: Simd>(s: S, of: &Operands<'a>, head: usize, [t, batch]: [usize; 2]) -> (Strip<'a>, f32) {
    let (dt, a, b, c) = (of.a.arg(2), of.a.arg(3), of.a.arg(4), of.a.arg(5));
    let (delta, a) = (math::softplus_one(s, dt.row([t, batch, 0])[head]), a.row([head, 0, 0]));
    let fade = if a.len() == 1 { math::exp_one(s, delta * a[0]) } else { delta };
    let at = [head / of.per_group, t, batch];
    let (fades, a) = ([fade; STRIP], [a; STRIP]);
    (Strip { fades, a, x: [0.0; STRIP], b: b.row(at), c: c.row(at) }, delta)
}

/// Heads as rows.
#[inline(always)]
fn of_heads<'a, S: Simd>(s: S, of: &Operands<'a>, place: &Place, [t, batch]: [usize; 2]) -> Strip<'a> {
    let (x, dt, a) = (of.a.arg(1), of.a.arg(2), of.a.arg(3));
    let (b, c) = (of.a.arg(4), of.a.arg(5));
    let (first, n) = (place.block * of.per_group + place.rows.start, place.rows.len());
    let at = [place.block, t, batch];
    let mut numbers =
        Strip { fades: [0.0; STRIP], a: [&[]; STRIP], x: [0.0; STRIP], b: b.row(at), c: c.row(at) };
    for i in 0..n {
        numbers.x[i] = x.row([first + i, t, batch])[0];
        numbers.a[i] = a.row([first + i, 0, 0]);
    }
    let delta = math::softplus(s, s.load_part(&dt.row([t, batch, 0])[first..first + n]));
    s.store(s.mul(s.load(&numbers.x), delta), &mut numbers.x);
    s.store(delta, &mut numbers.fades);
    if a.ne[0] == 1 {
        let mut a = [0.0; STRIP];
        for (to, a) in a.iter_mut().zip(&numbers.a[..n]) {
            *to = a[0];
        }
        s.store(math::exp(s, s.mul(delta, s.load(&a))), &mut numbers.fades);
    }
    numbers
}

/// The next token of at most 16 rows.
#[inline(always)]
fn strip<S: Simd>(s: S, is_shared: bool, of: &Strip<'_>, state: &mut [f32], y: &mut [f32]) {
    let sums = match (is_shared, S::WIDE) {
        (true, true) => sums::<S, true, 4>(s, of, state),
        (true, false) => sums::<S, true, 2>(s, of, state),
        (false, _) => sums::<S, false, 2>(s, of, state),
    };
    s.store_part(s.sums(sums), y);
}

/// Rows N at a time.
#[inline(always)]
fn sums<S: Simd, const SHARED: bool, const N: usize>(
    s: S,
    of: &Strip<'_>,
    state: &mut [f32],
) -> [S::F; STRIP] {
    let (mut all, mut i) = ([s.zero(); STRIP], 0);
    let mut several = state.chunks_exact_mut(N * of.b.len());
    for rows in &mut several {
        let sums = sums_of::<S, SHARED, N>(s, of, rows, i);
        all[i..i + N].copy_from_slice(&sums);
        i += N;
    }
    for row in several.into_remainder().chunks_exact_mut(of.b.len()) {
        [all[i]] = sums_of::<S, SHARED, 1>(s, of, row, i);
        i += 1;
    }
    all
}

/// Rows from `first` on.
#[inline(always)]
fn sums_of<S: Simd, const SHARED: bool, const N: usize>(
    s: S,
    of: &Strip<'_>,
    state: &mut [f32],
    first: usize,
) -> [S::F; N] {
    let width = of.b.len();
    let fades: [S::F; N] = array(|n| s.splat(of.fades[first + n]));
    let x: [S::F; N] = array(|n| s.splat(of.x[first + n]));
    let mut sums = [s.zero(); N];
    for start in (0..width).step_by(LANES) {
        let (b, c) = (vector(s, of.b, start), vector(s, of.c, start));
        for n in 0..N {
            let fade = match SHARED {
                true => fades[n],
                false => math::exp(s, s.mul(fades[n], vector(s, of.a[first + n], start))),
            };
            let elements = &mut state[n * width + start..(n + 1) * width];
            let new = s.fma(vector(s, elements, 0), fade, s.mul(b, x[n]));
            sums[n] = s.fma(new, c, sums[n]);
            store(s, new, elements);
        }
    }
    sums
}
