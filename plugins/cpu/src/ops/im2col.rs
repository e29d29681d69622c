//! y[t + n_taps·c, o] = x[o·stride + t·dilation - pad, c]: the elements under each position of a kernel as one row.

use super::check::{self, Answer, ensure};
use super::window::{self, Window};
use super::{Args, Output, Worker, rows};
use crate::simd::Isa;
use llmrt_plugin::abi::op::Im2colParams;
use llmrt_plugin::{DType, NodeView, Reason, TensorView};

pub fn supports(node: &NodeView<'_>) -> Answer {
    let p = check::params(Im2colParams::from_bytes(node.params_bytes()))?;
    let (kernel, x, dtype) = operands(node, p.dtype)?;
    let (kernel, x) = (kernel.ne(), x.ne());
    match p.is_2d {
        0 => ensure(kernel[1] == x[1] && x[3] == 1, Reason::Shape)?,
        1 => ensure(kernel[2] == x[2], Reason::Shape)?,
        _ => return Err(Reason::Param),
    }
    let c = columns(kernel, x, &p);
    let ([n0, n1, _], row) = (c.n_out()?, c.row_len()?);
    let ne = if p.is_2d == 1 { [row, n0, n1, x[3]] } else { [row, n0, x[2], 1] };
    check::result(node, dtype, ne)
}

pub fn compute(w: &mut Worker<'_>, a: &Args, out: Output<'_>) {
    let p = a.params(Im2colParams::from_bytes);
    columns(a.arg(0).ne, a.arg(1).ne, &p).compute(w, a, out);
}

fn columns(kernel: [usize; 4], x: [usize; 4], p: &Im2colParams) -> Columns {
    if p.is_2d == 0 {
        let windows = window::windows(kernel, [p.stride0], [p.pad0], [p.dilation0]);
        return Columns { windows, n_in: [x[0], 1, 1], n_dims: 1, c: x[1] };
    }
    let (stride, pad, dilation) = ([p.stride0, p.stride1], [p.pad0, p.pad1], [p.dilation0, p.dilation1]);
    let windows = window::windows(kernel, stride, pad, dilation);
    Columns { windows, n_in: [x[0], x[1], 1], n_dims: 2, c: x[2] }
}

/// Kernel (of any dtype: only its shape matters), x and the dtype of the result.
pub fn operands<'a>(
    node: &NodeView<'a>,
    dtype: u32,
) -> Result<(TensorView<'a>, TensorView<'a>, DType), Reason> {
    let kernel = check::given(node, 0)?;
    let x = check::numbers(node, 1)?;
    match DType::from_id(dtype) {
        Some(dtype @ (DType::F16 | DType::F32)) => Ok((kernel, x, dtype)),
        _ => Err(Reason::Param),
    }
}

/// How rows are made of x, whose dims are followed by its channels.
pub struct Columns {
    /// How the kernel moves in each dim.
    pub windows: [Window; 3],
    /// Elements of x in each dim.
    pub n_in: [usize; 3],
    /// Dims of x before its channels.
    pub n_dims: usize,
    /// Channels.
    pub c: usize,
}

impl Columns {
    /// Positions of the kernel in each dim.
    pub fn n_out(&self) -> Result<[usize; 3], Reason> {
        window::n_out(&self.windows, self.n_in)
    }

    /// Elements of a row.
    pub fn row_len(&self) -> Result<usize, Reason> {
        let mut sizes = self.windows.iter().map(|w| w.size);
        sizes.try_fold(self.c, |n, size| n.checked_mul(size)).ok_or(Reason::Shape)
    }

    /// One thread's rows.
    pub fn compute(&self, w: &mut Worker<'_>, a: &Args, out: Output<'_>) {
        let Ok([n0, n1, n2]) = self.n_out() else { return };
        for (at, y) in out.rows() {
            let row = a.dst.ravel(at);
            let out = [row % n0, row / n0 % n1, row / n0 / n1 % n2];
            let elems = w.scratch.rows.take::<f32>(a.dst.ne[0]);
            let room = w.scratch.sums.take::<f32>(self.n_in[0]);
            self.fill(w.isa, a, out, row / n0 / n1 / n2, room, elems);
            y.write(w.isa, elems);
        }
    }

    /// Makes the row of position `out`; `room` is for a row of x.
    fn fill(&self, isa: Isa, a: &Args, out: [usize; 3], batch: usize, room: &mut [f32], y: &mut [f32]) {
        let (x, [w0, w1, w2]) = (a.arg(1), &self.windows);
        let taps = w0.taps(out[0], self.n_in[0]);
        y.fill(0.0);
        if taps.is_empty() {
            return;
        }
        let part = w0.at(out[0], taps.start)..w0.at(out[0], taps.end - 1) + 1;
        for (c, y) in y.chunks_exact_mut(w0.size * w1.size * w2.size).enumerate() {
            for tap2 in w2.taps(out[2], self.n_in[2]) {
                for tap1 in w1.taps(out[1], self.n_in[1]) {
                    let (i1, i2) = (w1.at(out[1], tap1), w2.at(out[2], tap2));
                    let at = match self.n_dims {
                        1 => [c, batch, 0],
                        2 => [i1, c, batch],
                        _ => [i1, i2, batch * self.c + c],
                    };
                    let seen = rows::read(isa, x, at, part.clone(), room);
                    let y = &mut y[(tap2 * w1.size + tap1) * w0.size..][taps.clone()];
                    match w0.dilation {
                        1 => y.copy_from_slice(seen),
                        step => y.iter_mut().zip(seen.iter().step_by(step)).for_each(|(y, x)| *y = *x),
                    }
                }
            }
        }
    }
}
