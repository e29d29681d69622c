//! What ops share that pass a state from token to token. A state is a matrix whose rows depend on no other row, or whose
//! columns on no other column, so threads share heads, and rows of heads. Within these, tokens come one after the other, each
//! with the same arithmetic wherever a prompt is cut; a state that fits the first cache is read from there by all
//! tokens of a run.

pub mod columns;
pub mod rows;

use super::check::{self, Answer, ensure, product};
use super::output::Tile;
use super::ragged::Sequences;
use super::{Args, Output, ragged};
use crate::simd::{LANES, Simd};
use llmrt_plugin::{DType, NodeView, Reason};
use std::ops::Range;

/// Tokens whose operands are prepared at a time.
pub const RUN: usize = 32;

/// Rows of a state that a thread takes at a time, where rows are independent.
pub const UNIT: usize = 64;

/// Sources [S, H, n_tokens] before the state [S·S·H, n_slots], source `n`; source `first_at` is [S, H]. After the state ids
/// and query starts, or neither.
pub fn supports(node: &NodeView<'_>, n: usize, first_at: Option<usize>) -> Answer {
    let [s, h, n_tokens, _] = check::floats(node, 0)?.ne();
    for i in 0..n {
        let expected = [s, h, if first_at == Some(i) { 1 } else { n_tokens }, 1];
        ensure(check::floats(node, i)?.ne() == expected, Reason::Shape)?;
    }
    let state = check::floats(node, n)?.ne();
    let n_slots = state[1];
    ensure(state == [product(&[s, s, h])?, n_slots, 1, 1], Reason::Shape)?;
    let n_seqs = match ragged::is(node, n + 1) {
        true => ragged::supports(node, n + 1)?,
        false => {
            ensure(n_tokens.is_multiple_of(n_slots), Reason::Shape)?;
            n_slots
        }
    };
    let n_rows = product(&[s, n_seqs])?.checked_add(n_tokens).ok_or(Reason::Shape)?;
    check::result(node, DType::F32, [product(&[s, h])?, n_rows, 1, 1])
}

/// The states of an op, and how they are shared out: of each of `n_blocks` `n_rows` rows of `width` elements, `n_unit` rows
/// to a thread. Each token gives one output for each row.
#[derive(Clone, Copy)]
pub struct States {
    /// Rows of a block.
    pub n_rows: usize,
    /// Rows that a thread takes at a time.
    pub n_unit: usize,
    /// Elements of a row.
    pub width: usize,
    /// Heads, or groups of them.
    pub n_blocks: usize,
    /// Tokens of all sequences.
    pub n_tokens: usize,
    /// States of each sequence in the result: after its last token, one token before, and so on.
    pub n_states: usize,
}

/// Rows of a block, which a thread has at hand.
pub struct Place {
    /// The block.
    pub block: usize,
    /// The rows.
    pub rows: Range<usize>,
}

/// This thread's rows, sequence by sequence: `begin` gets place and slot and the state to fill, `run` goes through tokens
/// with the state, and writes their outputs to rows [block, token, 0] of the tile.
pub fn scan(
    out: Output<'_>,
    of: States,
    sequences: &Sequences<'_>,
    begin: impl Fn(&Place, usize, &mut [f32]),
    mut run: impl FnMut(&Place, Range<usize>, &mut [f32], &mut Tile<'_>),
) {
    let States { n_rows, width, n_blocks, n_tokens, n_states, .. } = of;
    let n_unit = if width == 0 { n_rows } else { of.n_unit };
    let (n_seqs, size) = (sequences.len(), n_rows * width);
    let [y, states] = out.split_at(n_rows * n_blocks * n_tokens);
    let [last, kept] = states.split_at(size * n_blocks * n_seqs);
    let y = y.reshaped([n_rows, n_blocks, n_tokens, 1]).tiles([n_unit, 1, n_tokens, 1]);
    let last = last.reshaped([size, n_blocks, n_seqs, 1]).tiles([n_unit * width, 1, n_seqs, 1]);
    let kept = kept.reshaped([size, n_blocks, n_seqs, n_states - 1]);
    let kept = kept.tiles([n_unit * width, 1, n_seqs, n_states]);
    for ((mut y, mut last), mut kept) in y.zip(last).zip(kept) {
        let [rows, blocks, tokens, _] = y.dims();
        let place = Place { block: blocks.start, rows };
        if sequences.may_have_gaps() {
            tokens.for_each(|token| y.row([place.block, token, 0]).fill(0.0));
        }
        for (seq, (slot, tokens)) in sequences.iter().enumerate() {
            let state = last.row([place.block, seq, 0]);
            match slot {
                Some(slot) => begin(&place, slot, state),
                None => state.fill(0.0),
            }
            // Before each of the last tokens the state is kept.
            let first = tokens.end.saturating_sub(n_states - 1).max(tokens.start + 1).min(tokens.end);
            run(&place, tokens.start..first, state, &mut y);
            for token in first..tokens.end {
                kept.row([place.block, seq, tokens.end - token - 1]).copy_from_slice(state);
                run(&place, token..token + 1, state, &mut y);
            }
            for back in tokens.len().max(1)..n_states {
                kept.row([place.block, seq, back - 1]).fill(0.0);
            }
        }
    }
}

/// As [`scan`], of ops that [`supports`] is of: heads of S rows of S elements.
pub fn scan_heads(
    a: &Args,
    out: Output<'_>,
    state_at: usize,
    n_unit: usize,
    run: impl FnMut(&Place, Range<usize>, &mut [f32], &mut Tile<'_>),
) {
    let [s, h, n_tokens, _] = a.arg(0).ne;
    let from = a.arg(state_at);
    let begin = |place: &Place, slot: usize, state: &mut [f32]| {
        let start = (place.block * s + place.rows.start) * s;
        state.copy_from_slice(&from.row([slot, 0, 0])[start..start + state.len()]);
    };
    let sequences = Sequences::bind(a, state_at + 1, n_tokens, from.ne[1]);
    let of = States { n_rows: s, n_unit, width: s, n_blocks: h, n_tokens, n_states: 1 };
    scan(out, of, &sequences, begin, run);
}

/// Pieces of at most [`RUN`] tokens.
pub fn runs(tokens: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let end = tokens.end;
    tokens.step_by(RUN).map(move |start| start..(start + RUN).min(end))
}

/// Σ a·b, in 16 lanes.
#[inline(always)]
pub fn dot<S: Simd>(s: S, a: &[f32], b: &[f32]) -> f32 {
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    let mut sum = s.zero();
    for (a, b) in a.iter().zip(b) {
        sum = s.fma(s.load(a), s.load(b), sum);
    }
    if !a_rest.is_empty() {
        sum = s.fma(s.load_part(a_rest), s.load_part(b_rest), sum);
    }
    s.sum(sum)
}
