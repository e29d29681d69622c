//! h = exp(Δ·a)·h + Δ·x·b, then y = Σ h·c over the elements of the state, Δ = softplus(dt). Threads share
//! the heads, and rows of heads; states are updated in the result.

mod pass;

use super::check::{self, Answer, ensure, product};
use super::output::Tile;
use super::ragged::{self, Sequences};
use super::recurrence::rows::STRIP;
use super::recurrence::{self, Place, States, UNIT};
use super::{Args, Output, Worker};
use crate::simd::{Simd, array, dispatch, math};
use llmrt_plugin::abi::op::StatesParams;
use llmrt_plugin::{DType, NodeView, Reason};
use pass::{TOKENS, Token, pass};
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

dispatch! {
    fn run(of: &Operands<'_>, place: &Place, tokens: Range<usize>, state: &mut [f32], y: &mut Tile<'_>) = run_with;
}

#[inline(always)]
fn run_with<S: Simd>(
    s: S,
    of: &Operands<'_>,
    place: &Place,
    mut tokens: Range<usize>,
    state: &mut [f32],
    y: &mut Tile<'_>,
) {
    let width = of.a.arg(4).ne[0];
    if width == 0 {
        tokens.for_each(|token| y.row([place.block, token, 0]).fill(0.0)); // sums over no elements
        return;
    }
    let mut sums = [[s.zero(); STRIP]; TOKENS];
    while !tokens.is_empty() {
        let some = tokens.start..tokens.end.min(tokens.start + TOKENS);
        tokens.start = some.end;
        let mut all = [Token::default(); TOKENS];
        let all = &mut all[..some.len()];
        if !of.heads_are_rows {
            some.clone().zip(&mut *all).for_each(|(token, to)| *to = of_head(s, of, place.block, token));
        }
        for (strip, state) in state.chunks_mut(STRIP * width).enumerate() {
            let first = place.rows.start + strip * STRIP;
            let rows = first..(first + STRIP).min(place.rows.end);
            for (token, to) in some.clone().zip(&mut *all) {
                match of.heads_are_rows {
                    true => *to = of_heads(s, of, place.block, rows.clone(), token),
                    false => scale_rows(s, of, place.block, rows.clone(), token, to),
                }
            }
            match of.a.arg(3).ne[0] == 1 {
                true => pass::<S, true>(s, &[&[]; STRIP], all, width, state, &mut sums),
                false => {
                    pass::<S, false>(s, &decays(of, place.block, rows.clone()), all, width, state, &mut sums)
                }
            }
            for (token, sums) in some.clone().zip(&sums) {
                s.store_part(s.sums(*sums), y.part([place.block, token, 0], rows.clone()));
            }
        }
    }
}

/// Token and batch, as indices.
fn at(of: &Operands<'_>, token: usize) -> [usize; 2] {
    let n_tokens = of.a.arg(1).ne[2];
    [token % n_tokens, token / n_tokens]
}

/// A token of one head, but for its x.
#[inline(always)]
fn of_head<'a, S: Simd>(s: S, of: &Operands<'a>, head: usize, token: usize) -> Token<'a> {
    let (dt, a, b, c) = (of.a.arg(2), of.a.arg(3), of.a.arg(4), of.a.arg(5));
    let [t, batch] = at(of, token);
    let (delta, a) = (math::softplus_one(s, dt.row([t, batch, 0])[head]), a.row([head, 0, 0]));
    let fade = if a.len() == 1 { math::exp_one(s, delta * a[0]) } else { delta };
    let group = [head / of.per_group, t, batch];
    Token { fades: [fade; STRIP], x: [0.0; STRIP], b: b.row(group), c: c.row(group), delta }
}

/// Δ·x of rows of one head.
#[inline(always)]
fn scale_rows<S: Simd>(
    s: S,
    of: &Operands<'_>,
    head: usize,
    rows: Range<usize>,
    token: usize,
    to: &mut Token<'_>,
) {
    let [t, batch] = at(of, token);
    let x = &of.a.arg(1).row([head, t, batch])[rows];
    s.store(s.mul(s.load_part(x), s.splat(to.delta)), &mut to.x);
}

/// A token of heads as rows.
#[inline(always)]
fn of_heads<'a, S: Simd>(
    s: S,
    of: &Operands<'a>,
    block: usize,
    rows: Range<usize>,
    token: usize,
) -> Token<'a> {
    let (x, dt, a) = (of.a.arg(1), of.a.arg(2), of.a.arg(3));
    let (b, c) = (of.a.arg(4), of.a.arg(5));
    let (heads, [t, batch]) = (of_rows(of, block, rows), at(of, token));
    let group = [block, t, batch];
    let mut to = Token { b: b.row(group), c: c.row(group), ..Token::default() };
    for (to, head) in to.x.iter_mut().zip(heads.clone()) {
        *to = x.row([head, t, batch])[0];
    }
    let delta = math::softplus(s, s.load_part(&dt.row([t, batch, 0])[heads.clone()]));
    s.store(s.mul(s.load(&to.x), delta), &mut to.x);
    s.store(delta, &mut to.fades);
    if a.ne[0] == 1 {
        let mut of_each = [0.0; STRIP];
        for (to, head) in of_each.iter_mut().zip(heads) {
            *to = a.row([head, 0, 0])[0];
        }
        s.store(math::exp(s, s.mul(delta, s.load(&of_each))), &mut to.fades);
    }
    to
}

/// The heads that are these rows.
fn of_rows(of: &Operands<'_>, block: usize, rows: Range<usize>) -> Range<usize> {
    block * of.per_group + rows.start..block * of.per_group + rows.end
}

/// Each row's a, where each element has its own.
fn decays<'a>(of: &Operands<'a>, block: usize, rows: Range<usize>) -> [&'a [f32]; STRIP] {
    let a = of.a.arg(3);
    match of.heads_are_rows {
        false => [a.row([block, 0, 0]); STRIP],
        true => {
            let heads = of_rows(of, block, rows);
            array(|i| a.row([(heads.start + i).min(heads.end - 1), 0, 0]))
        }
    }
}
