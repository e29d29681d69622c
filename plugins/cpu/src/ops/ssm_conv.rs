//! y[c, t, s] = Σₖ kernel[k, c] · x[t + k, c, s]. Threads share the channels in strips.

use super::check::{self, Answer, ensure};
use super::{Args, Worker};
use crate::simd::{Simd, dispatch};
use crate::tensor::Tensor;
use llmrt_plugin::{DType, NodeView, Reason};

/// Channels that a thread takes at a time: neighbours in the result.
const STRIP: usize = 16;

pub fn supports(node: &NodeView<'_>) -> Answer {
    let (x, kernel) = (check::floats(node, 0)?.ne(), check::floats(node, 1)?.ne());
    ensure(kernel[1..] == [x[1], 1, 1] && x[3] == 1, Reason::Shape)?;
    let n_tokens = x[0].checked_sub(kernel[0] - 1).ok_or(Reason::Shape)?;
    check::result(node, DType::F32, [x[1], n_tokens, x[2], 1])
}

pub fn compute(w: &mut Worker<'_>, a: &Args) {
    let [n_inner, _, n_seqs, _] = a.dst.ne;
    let strips = n_inner.div_ceil(STRIP);
    for unit in w.share(strips * n_seqs) {
        let first = unit % strips * STRIP;
        let channels = first..(first + STRIP).min(n_inner);
        convolve(w.isa, a.arg(0), a.arg(1), &a.dst, unit / strips, channels);
    }
}

dispatch! {
    fn convolve(
        x: &Tensor,
        kernel: &Tensor,
        y: &Tensor,
        seq: usize,
        channels: std::ops::Range<usize>,
    ) = convolve_with;
}

#[inline(always)]
fn convolve_with<S: Simd>(
    _: S,
    x: &Tensor,
    kernel: &Tensor,
    y: &Tensor,
    seq: usize,
    channels: std::ops::Range<usize>,
) {
    let n = channels.len();
    let (mut rows, mut taps): ([&[f32]; STRIP], [&[f32]; STRIP]) = ([&[]; STRIP], [&[]; STRIP]);
    for (i, channel) in channels.clone().enumerate() {
        rows[i] = x.row([channel, seq, 0]);
        taps[i] = kernel.row([channel, 0, 0]);
    }
    for token in 0..y.ne[1] {
        // SAFETY: these channels of this sequence are this thread's.
        let y = unsafe { y.part_mut([token, seq, 0], channels.clone()) };
        for (y, (row, taps)) in y.iter_mut().zip(rows.iter().zip(&taps).take(n)) {
            *y = taps.iter().zip(&row[token..]).fold(0.0, |sum, (k, x)| sum + k * x);
        }
    }
}
