//! y[c, t] = Σₖ kernel[k, c] · x[c, t - (n_taps - 1) + k], over the tokens of each sequence. Threads share the tokens, and
//! then the columns of the new states.

use super::check::{self, Answer, ensure, product};
use super::{Args, Output, Worker, ragged};
use crate::simd::{Simd, dispatch};
use crate::tensor::Tensor;
use llmrt_plugin::{DType, NodeView, Reason};
use std::ops::Range;

pub fn supports(node: &NodeView<'_>) -> Answer {
    let [x, kernel, states] = [0, 1, 2].map(|i| check::floats(node, i).map(|t| t.ne()));
    let ([n_inner, n_tokens, ne2, ne3], kernel, states) = (x?, kernel?, states?);
    let n_before = kernel[0].checked_sub(1).ok_or(Reason::Shape)?;
    ensure([ne2, ne3] == [1, 1] && kernel[1..] == [n_inner, 1, 1], Reason::Shape)?;
    ensure(states == [n_inner, n_before, states[2], 1], Reason::Shape)?;
    let n_kept = product(&[n_inner, n_before, ragged::supports(node, 3)?])?;
    let n = product(&[n_inner, n_tokens])?.checked_add(n_kept).ok_or(Reason::Shape)?;
    check::result(node, DType::F32, [n, 1, 1, 1])
}

pub fn compute(w: &mut Worker<'_>, a: &Args, out: Output<'_>) {
    let (x, kernel, states) = (a.arg(0), a.arg(1), a.arg(2));
    let (ids, starts) = (a.arg(3).ints([0; 3]), a.arg(4).ints([0; 3]));
    let ([n_inner, n_tokens, ..], n_before) = (x.ne, kernel.ne[0] - 1);
    let columns = |seq: usize, tokens: Range<usize>| Columns {
        x,
        states,
        slot: ragged::slot(ids[seq], states.ne[2]),
        tokens,
        n_before,
    };

    let [y, kept] = out.split_at(n_inner * n_tokens);
    for ([token, ..], y) in y.reshaped([n_inner, n_tokens, 1, 1]).rows() {
        let y = y.floats();
        y.fill(0.0);
        let of = ragged::ranges(starts, n_tokens).enumerate().find(|(_, tokens)| tokens.contains(&token));
        let Some((seq, tokens)) = of else { continue };
        let first = token - tokens.start;
        let columns = columns(seq, tokens);
        for tap in 0..=n_before {
            if let Some(column) = columns.column(first + tap) {
                add_tap(w.isa, kernel, tap, column, y);
            }
        }
    }
    for ([i, seq, _], y) in kept.reshaped([n_inner, n_before, ids.len(), 1]).rows() {
        let tokens = ragged::ranges(starts, n_tokens).nth(seq).unwrap_or_default();
        let (n, y) = (tokens.len(), y.floats());
        match columns(seq, tokens).column(n + i) {
            Some(column) => y.copy_from_slice(column),
            None => y.fill(0.0),
        }
    }
}

/// The columns of a sequence: those of its state, then its tokens.
struct Columns<'a> {
    x: &'a Tensor,
    states: &'a Tensor,
    slot: Option<usize>,
    tokens: Range<usize>,
    n_before: usize,
}

impl Columns<'_> {
    /// `None`: zeros.
    fn column(&self, i: usize) -> Option<&[f32]> {
        match i.checked_sub(self.n_before) {
            Some(token) => Some(self.x.row([self.tokens.start + token, 0, 0])),
            None => self.slot.map(|slot| self.states.row([i, slot, 0])),
        }
    }
}

dispatch! {
    fn add_tap(kernel: &Tensor, tap: usize, column: &[f32], y: &mut [f32]) = add_tap_with;
}

#[inline(always)]
fn add_tap_with<S: Simd>(_: S, kernel: &Tensor, tap: usize, column: &[f32], y: &mut [f32]) {
    for (channel, (y, x)) in y.iter_mut().zip(column).enumerate() {
        *y += kernel.row([channel, 0, 0])[tap] * x;
    }
}
