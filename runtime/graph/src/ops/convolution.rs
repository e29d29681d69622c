//! y[o, c] = Σ kernel[t, i, c] · x[o·stride + t·dilation - pad, i] over taps t and channels i: what the convolutions
//! in one, two and three dims have in common. Sums are of the decoded numbers; ggml rounds x to F16 where the kernel
//! is F16, which costs an NMSE of some 1e-8.

use super::window::{self, Window};
use super::{Inferred, check, value::Value};
use crate::graph::Graph;
use crate::tensor::{Shape, Tensor, TensorDef};
use llmrt_abi::DType;

/// A convolution; dims it does not have are 1. The channels of kernel, x and y follow the dims, then c_out or batches.
pub(super) struct Convolution {
    /// How the kernel moves in each dim.
    pub windows: [Window; 3],
    /// Elements of x in each dim.
    pub n_in: [u64; 3],
    /// Channels of x that a channel of y is made of.
    pub c_in: u64,
    /// Channels of y.
    pub c_out: u64,
    /// Images that x holds.
    pub n_batch: u64,
    /// Whether channel c of y is made of channel c of x alone.
    pub is_depthwise: bool,
}

/// From the shapes of kernel and x and the params to the convolution and the shape of y.
pub(super) type Rule = fn(Shape, Shape, &[u8]) -> Result<(Convolution, Shape), String>;

/// Kernels are F32, F16 or BF16 without gaps, x is F32 at any strides; y is F32.
pub(super) fn infer(src: &[Option<&TensorDef>], params: &[u8], rule: Rule) -> Inferred {
    let kernel = kernel(src)?;
    let x = check::not_empty(check::any_floats(src, 1, "x")?, "x")?;
    Ok((DType::F32, rule(kernel.ne, x.ne, params)?.1))
}

/// The plain reference.
pub(super) fn reference(src: &[Option<&Value>], params: &[u8], rule: Rule) -> Value {
    let (kernel, x) = (check::arg(src, 0), check::arg(src, 1));
    match rule(kernel.ne, x.ne, params) {
        Ok((convolution, ne)) => Value::f32(ne, convolution.compute(kernel.floats(), x.floats())),
        Err(_) => Value::f32([0; 4], vec![]), // `infer` refused it
    }
}

/// Source 0: a kernel, F32, F16 or BF16, not empty and without gaps.
pub(super) fn kernel<'a>(src: &[Option<&'a TensorDef>]) -> Result<&'a TensorDef, String> {
    let kernel = check::not_empty(check::numbers(src, 0, "kernel")?, "kernel")?;
    match kernel.is_contiguous() {
        true => Ok(kernel),
        false => Err("kernel has gaps; make it contiguous with `cont`".into()),
    }
}

impl Convolution {
    /// Positions of the kernel in each dim.
    pub fn n_out(&self) -> Result<[u64; 3], String> {
        window::n_out(&self.windows, self.n_in)
    }

    fn compute(&self, kernel: &[f32], x: &[f32]) -> Vec<f32> {
        let taps = self.windows.map(|w| w.size);
        let (n_taps, n_elems) = (taps.iter().product::<u64>(), self.n_in.iter().product::<u64>());
        let x_channels = if self.is_depthwise { self.c_out } else { self.c_in };
        let mut y = vec![];
        for batch in 0..self.n_batch {
            for channel in 0..self.c_out {
                let first = batch * x_channels + if self.is_depthwise { channel } else { 0 };
                for out in window::indices(self.n_out().unwrap_or_default()) {
                    let mut sum = 0.0;
                    for i in 0..self.c_in {
                        let kernel = &kernel[((channel * self.c_in + i) * n_taps) as usize..];
                        let x = &x[((first + i) * n_elems) as usize..];
                        for (k, tap) in kernel.iter().zip(window::indices(taps)) {
                            if let Some(at) = window::at(&self.windows, out, tap, self.n_in) {
                                sum += *k as f64 * x[window::place(at, self.n_in) as usize] as f64;
                            }
                        }
                    }
                    y.push(sum as f32);
                }
            }
        }
        y
    }
}

/// Kernel [k, c_out] times `columns` [k, n_positions · n_batch] of im2col: [n_positions, c_out, n_batch].
pub(super) fn multiply(g: &mut Graph, kernel: Tensor, columns: Tensor, c_out: u64, n_batch: u64) -> Tensor {
    let (k, n) = (g.ne(columns)[0], g.def(columns).n_rows());
    let kernel = g.reshape(kernel, &[k, c_out]);
    let columns = g.reshape(columns, &[k, n]);
    let y = g.mul_mat(kernel, columns);
    let y = g.reshape(y, &[c_out, n / n_batch, n_batch]);
    let y = g.permute(y, [1, 0, 2, 3]);
    g.cont(y)
}

/// Each channel's kernel [k, 1, c] times its `columns` [k, n_positions, c, n_batch]: [1, n_positions, c, n_batch].
pub(super) fn multiply_depthwise(
    g: &mut Graph,
    kernel: Tensor,
    columns: Tensor,
    c: u64,
    n_batch: u64,
) -> Tensor {
    let (k, n) = (g.ne(columns)[0], g.def(columns).n_rows());
    let kernel = g.reshape(kernel, &[k, 1, c]);
    let columns = g.reshape(columns, &[k, n / c / n_batch, c, n_batch]);
    g.mul_mat(kernel, columns)
}

/// `t`, or a copy of it without gaps.
pub(super) fn contiguous(g: &mut Graph, t: Tensor) -> Tensor {
    if g.def(t).is_contiguous() { t } else { g.cont(t) }
}

#[cfg(test)]
#[path = "convolution_tests.rs"]
mod tests;
