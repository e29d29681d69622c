//! y[o, c] = Σ kernel[t, i, c] · x[o·stride + t·dilation - pad, i]: what the convolutions have in common. For 16
//! positions at a time the elements under some taps are laid out tap by tap, 16 side by side; each channel of y is then
//! a sum of vectors times numbers, in the same order for any instruction set and number of threads.

use super::check::{self, ensure};
use super::window::{self, Window};
use super::{Args, Output, Worker, rows};
use crate::simd::{LANES, Simd, array, dispatch};
use crate::tensor::Tensor;
use llmrt_plugin::{NodeView, Reason, TensorView};
use std::ops::Range;

/// Taps (of all channels) that are laid out at a time: 16 KiB.
const CHUNK: usize = 256;
/// Channels of y whose weights are decoded at a time.
const CHANNELS: usize = 8;
/// Channels of y that one thread sums side by side.
const TILE: usize = 1024;
/// As [`TILE`], where there are too few positions for all threads.
const SMALL_TILE: usize = 64;

/// A convolution; dims it does not have are 1.
pub struct Convolution {
    /// How the kernel moves in each dim.
    pub windows: [Window; 3],
    /// Elements of x in each dim.
    pub n_in: [usize; 3],
    /// Dims of x before its channels.
    pub n_dims: usize,
    /// Channels of x that a channel of y is made of.
    pub c_in: usize,
    /// Channels of y that are made of the same channels of x.
    pub c_out: usize,
    /// Sets of such channels: 1, or all channels of a depthwise convolution.
    pub n_groups: usize,
    /// Images that x holds.
    pub n_batch: usize,
}

/// Kernel (F32, F16 or BF16, no gaps) and x (F32 at any strides).
pub fn operands<'a>(node: &NodeView<'a>) -> Result<(TensorView<'a>, TensorView<'a>), Reason> {
    Ok((kernel(node)?, check::any_floats(node, 1)?))
}

/// Source 0: F32, F16 or BF16, no gaps.
pub fn kernel<'a>(node: &NodeView<'a>) -> Result<TensorView<'a>, Reason> {
    let kernel = check::numbers(node, 0)?;
    ensure(kernel.is_contiguous(), Reason::Stride)?;
    Ok(kernel)
}

/// One thread's part.
pub fn compute(w: &mut Worker<'_>, a: &Args, out: Output<'_>, c: &Convolution) {
    let Ok(n_out) = c.n_out() else { return };
    let (kernel, x) = (a.arg(0), a.arg(1));
    let n_positions: usize = n_out.iter().product();
    let (n_blocks, n_images) = (n_positions.div_ceil(LANES), c.n_batch * c.n_groups);
    let tile = c.c_out.min(if n_blocks * n_images >= 4 * w.rank.n { TILE } else { SMALL_TILE });
    let n_k = c.c_in * c.windows.iter().map(|w| w.size).product::<usize>();
    let out = out.reshaped([n_positions, c.c_out, n_images, 1]);
    for mut y in out.take_tiles([LANES, tile, 1, 1], 1) {
        let [positions, channels, image, _] = y.dims();
        let (first, image) = (channels.start, image.start);
        let origin = c.origin(x, image / c.n_groups, image % c.n_groups);
        let (lines, n_lines) = Line::of(positions.clone(), n_out);
        let sums = w.scratch.sums.take::<[f32; LANES]>(channels.len());
        sums.fill([0.0; LANES]);
        for k in (0..n_k).step_by(CHUNK) {
            let ks = k..n_k.min(k + CHUNK);
            let panel = &mut w.scratch.panel.take::<[f32; LANES]>(CHUNK)[..ks.len()];
            c.lay_out(x, origin, &lines[..n_lines], ks.clone(), panel);
            let first = image % c.n_groups * c.c_out + first;
            for (j, sums) in sums.chunks_mut(CHANNELS).enumerate() {
                let weights = w.scratch.rows.take::<f32>(CHANNELS * CHUNK);
                let room = weights.chunks_exact_mut(ks.len());
                for (channel, room) in (first + j * CHANNELS..).zip(room.take(sums.len())) {
                    let size = kernel.dtype.block_bytes();
                    let bytes = &kernel.bytes()[(channel * n_k + ks.start) * size..][..ks.len() * size];
                    rows::decode(w.isa, kernel.dtype, bytes, room);
                }
                accumulate(w.isa, panel, weights, sums);
            }
        }
        for (channel, sums) in channels.zip(sums.iter()) {
            y.row([channel, image, 0]).copy_from_slice(&sums[..positions.len()]);
        }
    }
}

/// Positions of a block that follow each other in dim 0.
#[derive(Clone, Default)]
struct Line {
    /// Where they stand in the block.
    lanes: Range<usize>,
    /// The first one.
    out: [usize; 3],
}

impl Line {
    /// The lines of at most 16 positions, and how many they are.
    fn of(positions: Range<usize>, [n0, n1, _]: [usize; 3]) -> ([Line; LANES], usize) {
        let mut lines: [Line; LANES] = Default::default();
        let (mut n, mut at) = (0, positions.start);
        for line in &mut lines {
            if at >= positions.end {
                break;
            }
            let len = (n0 - at % n0).min(positions.end - at);
            let lane = at - positions.start;
            *line = Line { lanes: lane..lane + len, out: [at % n0, at / n0 % n1, at / n0 / n1] };
            (n, at) = (n + 1, at + len);
        }
        (lines, n)
    }
}

impl Convolution {
    /// Positions of the kernel in each dim.
    pub fn n_out(&self) -> Result<[usize; 3], Reason> {
        window::n_out(&self.windows, self.n_in)
    }

    /// Bytes before the first channel of x that a group of channels of y is made of.
    fn origin(&self, x: &Tensor, batch: usize, group: usize) -> usize {
        let channel = group * self.c_in;
        match self.n_dims {
            3 => (batch * self.n_groups * self.c_in + channel) * x.nb[3],
            n => batch * x.nb[n + 1] + channel * x.nb[n],
        }
    }

    /// Elements of x under the taps `ks` (those of a channel after those of the one before) at the positions of `lines`.
    fn lay_out(
        &self,
        x: &Tensor,
        origin: usize,
        lines: &[Line],
        ks: Range<usize>,
        panel: &mut [[f32; LANES]],
    ) {
        let [size0, size1, size2] = self.windows.map(|w| w.size);
        let mut tap = [ks.start % size0, ks.start / size0 % size1, ks.start / size0 / size1 % size2];
        let mut channel = ks.start / size0 / size1 / size2;
        for to in panel {
            for line in lines {
                self.lay_out_line(x, origin + channel * x.nb[self.n_dims], line, tap, to);
            }
            tap[0] += 1;
            if tap[0] == size0 {
                tap = [0, tap[1] + 1, tap[2]];
            }
            if tap[1] == size1 {
                tap = [0, 0, tap[2] + 1];
            }
            if tap[2] == size2 {
                tap = [0; 3];
                channel += 1;
            }
        }
    }

    fn lay_out_line(&self, x: &Tensor, channel: usize, line: &Line, tap: [usize; 3], to: &mut [f32; LANES]) {
        let [w0, w1, w2] = &self.windows;
        let to = &mut to[line.lanes.clone()];
        let found = (w1.find(line.out[1], tap[1], self.n_in[1]), w2.find(line.out[2], tap[2], self.n_in[2]));
        let (Some(i1), Some(i2)) = found else { return to.fill(0.0) };
        let first = line.out[0];
        let inside = w0.inside(tap[0], self.n_in[0], first..first + to.len());
        if inside.is_empty() {
            return to.fill(0.0);
        }
        to[..inside.start - first].fill(0.0);
        to[inside.end - first..].fill(0.0);
        // Dims that x does not have are at 0.
        let row = channel + [0, i1 * x.nb[1], i1 * x.nb[1] + i2 * x.nb[2]][self.n_dims - 1];
        let bytes = &x.bytes()[row + w0.at(inside.start, tap[0]) * x.nb[0]..];
        let to = &mut to[inside.start - first..inside.end - first];
        let step = w0.stride * x.nb[0];
        if step == 4 {
            to.iter_mut().zip(bytes.as_chunks::<4>().0).for_each(|(to, b)| *to = f32::from_ne_bytes(*b));
        } else {
            for (i, to) in to.iter_mut().enumerate() {
                let b = &bytes[i * step..][..4];
                *to = f32::from_ne_bytes([b[0], b[1], b[2], b[3]]);
            }
        }
    }
}

dispatch! {
    /// Adds to each channel's 16 sums its weights (as many as `panel` is long) times the vectors of `panel`.
    fn accumulate(panel: &[[f32; LANES]], weights: &[f32], sums: &mut [[f32; LANES]]) = accumulate_with;
}

#[inline(always)]
fn accumulate_with<S: Simd>(s: S, panel: &[[f32; LANES]], weights: &[f32], sums: &mut [[f32; LANES]]) {
    let n = panel.len();
    let mut rest = weights;
    let mut sums = sums;
    while sums.len() >= 4 {
        let n_channels = if S::WIDE && sums.len() >= 8 { 8 } else { 4 };
        let (now, later) = std::mem::take(&mut sums).split_at_mut(n_channels);
        match n_channels {
            8 => accumulate_channels::<S, 8>(s, panel, rest, now),
            _ => accumulate_channels::<S, 4>(s, panel, rest, now),
        }
        (sums, rest) = (later, &rest[n_channels * n..]);
    }
    for (i, sum) in sums.chunks_exact_mut(1).enumerate() {
        accumulate_channels::<S, 1>(s, panel, &rest[i * n..], sum);
    }
}

#[inline(always)]
fn accumulate_channels<S: Simd, const C: usize>(
    s: S,
    panel: &[[f32; LANES]],
    weights: &[f32],
    sums: &mut [[f32; LANES]],
) {
    let n = panel.len();
    let weights: [&[f32]; C] = array(|c| &weights[c * n..][..n]);
    let mut acc: [S::F; C] = array(|c| s.load(&sums[c]));
    for (k, x) in panel.iter().enumerate() {
        let x = s.load(x);
        for c in 0..C {
            acc[c] = s.fma(s.splat(weights[c][k]), x, acc[c]);
        }
    }
    for c in 0..C {
        s.store(acc[c], &mut sums[c]);
    }
}
