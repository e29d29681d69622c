//! y[c, t] = Σₖ kernel[k, c] · x[c, t - (n_taps - 1) + k], over the tokens of each sequence. Threads share the
//! channels.

use super::check::{self, Answer, ensure, product};
use super::output::Tile;
use super::ragged::{self, Sequences};
use super::recurrence::rows::{full, store, vector};
use super::{Args, Output, Worker};
use crate::simd::{LANES, Simd, dispatch};
use crate::tensor::Tensor;
use llmrt_plugin::{DType, NodeView, Reason};
use std::ops::Range;

/// Channels that a thread takes at a time.
const STRIP: usize = 256;

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
    let ([n_inner, n_tokens, ..], n_before) = (x.ne, kernel.ne[0] - 1);
    let sequences = Sequences::bind(a, 3, n_tokens, states.ne[2]);
    let columns = || {
        let columns = |(slot, tokens)| Columns { x, states, slot, tokens, n_before };
        sequences.iter().map(columns)
    };

    let [y, kept] = out.split_at(n_inner * n_tokens);
    let taps = w.scratch.floats[0].take::<f32>(STRIP * kernel.ne[0]);
    for mut y in y.reshaped([n_inner, n_tokens, 1, 1]).tiles([STRIP, n_tokens, 1, 1]) {
        let [channels, tokens, ..] = y.dims();
        // Taps of neighbouring channels side by side.
        for (i, channel) in channels.clone().enumerate() {
            let of_channel = kernel.row([channel, 0, 0]).iter().enumerate();
            of_channel.for_each(|(tap, weight)| taps[tap * STRIP + i] = *weight);
        }
        tokens.for_each(|token| y.row([token, 0, 0]).fill(0.0));
        columns().for_each(|columns| convolve(w.isa, &columns, taps, &mut y));
    }
    let kept = kept.reshaped([n_inner, n_before, sequences.len(), 1]);
    for mut kept in kept.tiles([STRIP, n_before, sequences.len(), 1]) {
        let channels = kept.dims()[0].clone();
        for (seq, columns) in columns().enumerate() {
            for i in 0..n_before {
                let to = kept.row([i, seq, 0]);
                match columns.column(columns.tokens.len() + i) {
                    Some(column) => to.copy_from_slice(&column[channels.clone()]),
                    None => to.fill(0.0),
                }
            }
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
    fn convolve(columns: &Columns<'_>, taps: &[f32], y: &mut Tile<'_>) = convolve_with;
}

/// A strip's channels, over the tokens of a sequence.
#[inline(always)]
fn convolve_with<S: Simd>(s: S, columns: &Columns<'_>, taps: &[f32], y: &mut Tile<'_>) {
    let channels = y.dims()[0].clone();
    for (i, token) in columns.tokens.clone().enumerate() {
        let y = y.row([token, 0, 0]);
        for (tap, taps) in taps.chunks_exact(STRIP).enumerate() {
            let Some(column) = columns.column(i + tap) else { continue };
            let column = &column[channels.clone()];
            for start in (0..full(y.len())).step_by(LANES) {
                add::<S, true>(s, taps, column, y, start);
            }
            if full(y.len()) < y.len() {
                add::<S, false>(s, taps, column, y, full(y.len()));
            }
        }
    }
}

#[inline(always)]
fn add<S: Simd, const FULL: bool>(s: S, taps: &[f32], column: &[f32], y: &mut [f32], start: usize) {
    let (taps, column) = (vector::<S, FULL>(s, &taps[..y.len()], start), vector::<S, FULL>(s, column, start));
    store::<S, FULL>(s, s.fma(taps, column, vector::<S, FULL>(s, y, start)), y, start);
}
