//! y[c, t, s] = Σₖ kernel[k, c] · x[t + k, c, s]. Threads share the channels in strips.

use super::check::{self, Answer, ensure};
use super::output::Tile;
use super::{Args, Output, Worker};
use crate::simd::{Simd, dispatch};
use crate::tensor::Tensor;
use llmrt_plugin::{DType, NodeView, Reason};

/// Channels that a thread takes at a time: neighbours in the result.
const STRIP: usize = 16;

pub fn supports(node: &NodeView<'_>) -> Answer {
    let (x, kernel) = (check::floats(node, 0)?.ne(), check::floats(node, 1)?.ne());
    ensure(kernel[1..] == [x[1], 1, 1] && x[3] == 1, Reason::Shape)?;
    let n_tokens = x[0].checked_add(1).and_then(|n| n.checked_sub(kernel[0])).ok_or(Reason::Shape)?;
    check::result(node, DType::F32, [x[1], n_tokens, x[2], 1])
}

pub fn compute(w: &mut Worker<'_>, a: &Args, out: Output<'_>) {
    out.tiles([STRIP, a.dst.ne[1], 1, 1]).for_each(|mut y| convolve(w.isa, a.arg(0), a.arg(1), &mut y));
}

dispatch! {
    fn convolve(x: &Tensor, kernel: &Tensor, y: &mut Tile<'_>) = convolve_with;
}

#[inline(always)]
fn convolve_with<S: Simd>(_: S, x: &Tensor, kernel: &Tensor, y: &mut Tile<'_>) {
    let [channels, tokens, seq, _] = y.dims();
    let (n, seq) = (channels.len(), seq.start);
    let (mut rows, mut taps): ([&[f32]; STRIP], [&[f32]; STRIP]) = ([&[]; STRIP], [&[]; STRIP]);
    for (i, channel) in channels.enumerate() {
        rows[i] = x.row([channel, seq, 0]);
        taps[i] = kernel.row([channel, 0, 0]);
    }
    for token in tokens {
        let y = y.row([token, seq, 0]);
        for (y, (row, taps)) in y.iter_mut().zip(rows.iter().zip(&taps).take(n)) {
            *y = taps.iter().zip(&row[token.min(row.len())..]).fold(0.0, |sum, (k, x)| sum + k * x);
        }
    }
}
