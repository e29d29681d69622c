//! y[i·stride + t, c, n] += kernel[t, c, j] · x[i, j, n]: kernel [kw, kh, c_out, c_in], x [w, h, c_in, n]. A piece of a row
//! of y takes what 16 elements of x at a time give under each tap, always the same 16, so that sums keep their order.

use super::check::{self, Answer, ensure};
use super::{Args, Output, Worker, convolution, rows};
use crate::simd::{LANES, Simd, array, dispatch};
use crate::tensor::Tensor;
use llmrt_plugin::abi::op::Conv2dParams;
use llmrt_plugin::{DType, NodeView, Reason};

pub fn supports(node: &NodeView<'_>) -> Answer {
    let p = check::params(Conv2dParams::from_bytes(node.params_bytes()))?;
    ensure([p.pad0, p.pad1, p.dilation0, p.dilation1] == [0, 0, 1, 1], Reason::Param)?;
    let (kernel, x) = (convolution::kernel(node)?.ne(), check::floats(node, 1)?.ne());
    ensure(kernel[3] == x[2], Reason::Shape)?;
    let width = stretched(x[0], p.stride0, kernel[0])?;
    check::result(node, DType::F32, [width, stretched(x[1], p.stride1, kernel[1])?, kernel[2], x[3]])
}

/// Elements that `n` kernels of `size` cover, `stride` apart.
pub fn stretched(n: usize, stride: u32, size: usize) -> Result<usize, Reason> {
    ensure(stride > 0, Reason::Param)?;
    let covered =
        n.checked_sub(1).and_then(|n| n.checked_mul(stride as usize)).and_then(|n| n.checked_add(size));
    covered.ok_or(Reason::Shape)
}

pub fn compute(w: &mut Worker<'_>, a: &Args, out: Output<'_>) {
    let p = a.params(Conv2dParams::from_bytes);
    let ([k0, k1, c_out, c_in], x) = (a.arg(0).ne, a.arg(1));
    let transposed = Transposed {
        taps: [k0, k1],
        stride: [p.stride0 as usize, p.stride1 as usize],
        n_in: [x.ne[0], x.ne[1]],
        c_in,
        c_out,
        nb: [x.nb[1], x.nb[2], x.nb[3]],
    };
    transposed.compute(w, a, out);
}

/// A transposed convolution; in one dim, dim 1 is of one element.
pub struct Transposed {
    /// Taps of the kernel in each dim.
    pub taps: [usize; 2],
    /// Elements of y from one of x to the next.
    pub stride: [usize; 2],
    /// Elements of x in each dim.
    pub n_in: [usize; 2],
    /// Channels of x.
    pub c_in: usize,
    /// Channels of y.
    pub c_out: usize,
    /// Bytes from a row, channel, batch of x to the next.
    pub nb: [usize; 3],
}

impl Transposed {
    /// One thread's part.
    pub fn compute(&self, w: &mut Worker<'_>, a: &Args, out: Output<'_>) {
        let (kernel, x) = (a.arg(0), a.arg(1));
        let n_taps = self.taps[0] * self.taps[1];
        let n_rows = (self.n_in[1] - 1) * self.stride[1] + self.taps[1];
        let mut decoded = None;
        for (at, part, y) in out.pieces() {
            let row = a.dst.ravel(at);
            let (out1, c, batch) = (row % n_rows, row / n_rows % self.c_out, row / n_rows / self.c_out);
            let weights = w.scratch.rows.take::<f32>(self.c_in * n_taps);
            if decoded.replace(c) != Some(c) {
                for (j, to) in weights.chunks_exact_mut(n_taps.max(1)).enumerate() {
                    let bytes = n_taps * kernel.dtype.block_bytes();
                    let from = &kernel.bytes()[(j * self.c_out + c) * bytes..][..bytes];
                    rows::decode(w.isa, kernel.dtype, from, to);
                }
            }
            let y = y.floats();
            y.fill(0.0);
            let piece = Piece { all: self, x, weights, batch, out1, start: part.start };
            scatter(w.isa, &piece, y);
        }
    }
}

/// A piece of a row of y.
struct Piece<'a> {
    all: &'a Transposed,
    x: &'a Tensor,
    /// The channel's weights, [taps 0, taps 1, c_in].
    weights: &'a [f32],
    batch: usize,
    out1: usize,
    /// First element of the row.
    start: usize,
}

dispatch! {
    fn scatter(piece: &Piece<'_>, y: &mut [f32]) = scatter_with;
}

#[inline(always)]
fn scatter_with<S: Simd>(s: S, piece: &Piece<'_>, y: &mut [f32]) {
    let ([taps, _], [stride, _], [n_in, _]) = (piece.all.taps, piece.all.stride, piece.all.n_in);
    let first = (piece.start + 1).saturating_sub(taps).div_ceil(stride);
    let end = n_in.min((piece.start + y.len() - 1) / stride + 1);
    for block in (first / LANES * LANES..end).step_by(LANES) {
        let mut tap = 0;
        while tap < taps {
            let n_taps = [0, 1, 2, 2, 4][(taps - tap).min(4)];
            let mut sums = [[0.0; LANES]; 4];
            match n_taps {
                4 => sums = under_taps::<S, 4>(s, piece, block, tap),
                2 => [sums[0], sums[1]] = under_taps::<S, 2>(s, piece, block, tap),
                _ => [sums[0]] = under_taps::<S, 1>(s, piece, block, tap),
            }
            for (tap, sums) in (tap..).zip(&sums[..n_taps]) {
                for (i, sum) in (block..n_in).zip(sums) {
                    if let Some(y) = (i * stride + tap).checked_sub(piece.start).and_then(|o| y.get_mut(o)) {
                        *y += sum;
                    }
                }
            }
            tap += n_taps;
        }
    }
}

/// What 16 elements of x from `block` on, of all channels and the rows that reach this one, give under T taps.
#[inline(always)]
fn under_taps<S: Simd, const T: usize>(s: S, p: &Piece<'_>, block: usize, tap: usize) -> [[f32; LANES]; T] {
    let ([taps0, taps1], stride) = (p.all.taps, p.all.stride[1]);
    let n = LANES.min(p.all.n_in[0] - block);
    let mut acc: [S::F; T] = array(|_| s.zero());
    for tap1 in 0..taps1.min(p.out1 + 1) {
        let (i1, rest) = ((p.out1 - tap1) / stride, (p.out1 - tap1) % stride);
        if rest != 0 || i1 >= p.all.n_in[1] {
            continue;
        }
        for c in 0..p.all.c_in {
            let [nb1, nb2, nb3] = p.all.nb;
            let bytes = &p.x.bytes()[block * 4 + i1 * nb1 + c * nb2 + p.batch * nb3..][..n * 4];
            let mut x = [0.0; LANES];
            x.iter_mut().zip(bytes.as_chunks::<4>().0).for_each(|(x, b)| *x = f32::from_ne_bytes(*b));
            let x = s.load(&x);
            let weights = &p.weights[(c * taps1 + tap1) * taps0 + tap..][..T];
            for t in 0..T {
                acc[t] = s.fma(s.splat(weights[t]), x, acc[t]);
            }
        }
    }
    let mut sums = [[0.0; LANES]; T];
    for t in 0..T {
        s.store(acc[t], &mut sums[t]);
    }
    sums
}
