//! y[o] = the largest or the mean of a window of x [w, h, ...]. The padding counts as zeros in the mean, whose divisor
//! is always kernel0·kernel1; it has no largest: that of a window of padding is the lowest f32 (ggml's `pool_2d`).
//!
//! Result: F32, dims 0 and 1 each (n + 2·pad - kernel) div stride + 1, of x F32, F16 or BF16.

use super::operand::NUMBERS;
use super::{Inferred, Rules, case::Case, check, value::Value, window::Window};
use crate::graph::Graph;
use crate::tensor::{Shape, Tensor, TensorDef};
use llmrt_abi::{DType, Op, op::PoolParams};

impl Graph {
    /// Windows of the images `x` [w, h, ...] (F32, F16 or BF16): their largest elements or means, F32.
    pub fn pool_2d(&mut self, x: Tensor, params: &PoolParams) -> Tensor {
        self.push(Op::Pool2d, &[Some(x)], &params.to_bytes())
    }
}

pub(super) const RULES: Rules = Rules { infer, reference, decompose: None, cases };

/// Kind: the largest of a window.
pub(super) const MAX: u32 = 0;
/// Kind: the mean of a window.
pub(super) const AVERAGE: u32 = 1;

fn infer(src: &[Option<&TensorDef>], params: &[u8]) -> Inferred {
    let (p, x) = operands(src, params)?;
    Ok((DType::F32, result_shape(x, &p)?))
}

/// Params with a known kind, and the shape of x.
pub(super) fn operands(src: &[Option<&TensorDef>], params: &[u8]) -> Result<(PoolParams, Shape), String> {
    let p = check::params(PoolParams::from_bytes(params))?;
    if p.kind > AVERAGE {
        return Err(format!("pool {} is unknown, expected 0 or 1", p.kind));
    }
    Ok((p, check::numbers(src, 0, "x")?.ne))
}

fn result_shape(x: Shape, p: &PoolParams) -> Result<Shape, String> {
    let [w0, w1] = windows(p);
    Ok([w0.n_out(x[0])?, w1.n_out(x[1])?, x[2], x[3]])
}

fn windows(p: &PoolParams) -> [Window; 2] {
    [Window::new(p.kernel0.into(), p.stride0, p.pad0, 1), Window::new(p.kernel1.into(), p.stride1, p.pad1, 1)]
}

fn reference(src: &[Option<&Value>], params: &[u8]) -> Value {
    let p = PoolParams::from_bytes(params).unwrap_or_default();
    let x = check::arg(src, 0);
    let ne = result_shape(x.ne, &p).unwrap_or_default();
    let [w0, w1] = windows(&p);
    let mut y = vec![];
    for image in 0..ne[2] * ne[3] {
        for out1 in 0..ne[1] {
            for out0 in 0..ne[0] {
                let mut seen = vec![];
                for i1 in (0..w1.size).filter_map(|tap| w1.at(out1, tap, x.ne[1])) {
                    let row = x.row((image * x.ne[1] + i1) as usize);
                    let taps = (0..w0.size).filter_map(|tap| w0.at(out0, tap, x.ne[0]));
                    seen.extend(taps.map(|i0| row[i0 as usize]));
                }
                y.push(pool(p.kind, &seen, (w0.size * w1.size) as usize));
            }
        }
    }
    Value::f32(ne, y)
}

/// The largest of `seen`, or their sum divided.
pub(super) fn pool(kind: u32, seen: &[f32], divisor: usize) -> f32 {
    match kind {
        MAX => seen.iter().copied().fold(f32::MIN, f32::max),
        _ => (seen.iter().map(|&v| v as f64).sum::<f64>() / divisor as f64) as f32,
    }
}

fn cases() -> Vec<Case> {
    let mut cases = vec![];
    let mut add =
        |dtype: DType, kind: u32, x: [u64; 4], kernel: [u32; 2], stride: [u32; 2], pad: [u32; 2]| {
            let what = if kind == MAX { "largest" } else { "mean" };
            let name = format!("{what} of {dtype} {x:?}, kernel {kernel:?}, stride {stride:?}, pad {pad:?}");
            cases.push(Case::new(name, |g, _| {
                let x = g.input("x", dtype, &x);
                g.pool_2d(x, &params(kind, kernel, stride, pad));
            }));
        };
    for dtype in NUMBERS {
        for kind in [MAX, AVERAGE] {
            for kernel in [[1, 1], [3, 1], [1, 3], [3, 3]] {
                for stride in [[1, 1], [2, 1], [1, 2], [2, 2]] {
                    for pad in [[0, 0], [1, 0], [0, 1], [1, 1]] {
                        if kind == MAX && (kernel[0] == 1 && pad[0] == 1 || kernel[1] == 1 && pad[1] == 1) {
                            continue; // windows of padding alone, see below
                        }
                        add(dtype, kind, [10, 9, 3, 1], kernel, stride, pad);
                    }
                }
            }
            add(dtype, kind, [1, 1, 1, 1], [1, 1], [1, 1], [0, 0]);
            add(dtype, kind, [7, 5, 2, 3], [7, 5], [1, 1], [0, 0]);
            add(dtype, kind, [28, 28, 2, 1], [4, 4], [4, 4], [0, 0]);
            add(dtype, kind, [2500, 3, 1, 1], [3, 2], [2, 1], [1, 1]);
            add(dtype, kind, [4, 4, 2, 1], [2, 1], [3, 1], [4, 1]);
            add(dtype, kind, [0, 4, 2, 1], [2, 1], [1, 1], [2, 0]);
            add(dtype, kind, [4, 0, 2, 1], [2, 2], [1, 1], [0, 1]);
        }
    }
    for (kind, dtype) in [(MAX, DType::F32), (AVERAGE, DType::F16)] {
        cases.push(Case::new(format!("{dtype} images with their channels first"), |g, _| {
            let x = g.input("x", dtype, &[6, 12, 11]);
            let x = g.permute(x, [1, 2, 0, 3]);
            g.pool_2d(x, &params(kind, [3, 3], [2, 2], [1, 1]));
        }));
    }
    cases
}

fn params(kind: u32, kernel: [u32; 2], stride: [u32; 2], pad: [u32; 2]) -> PoolParams {
    PoolParams {
        kind,
        kernel0: kernel[0],
        kernel1: kernel[1],
        stride0: stride[0],
        stride1: stride[1],
        pad0: pad[0],
        pad1: pad[1],
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{check, floats};
    use super::*;

    #[test]
    fn a_mean_counts_the_padding() {
        for (kind, expected) in [
            (AVERAGE, [0.25, 0.75, 0.5, 1., 2.5, 1.5, 0.75, 1.75, 1.]),
            (MAX, [1., 2., 2., 3., 4., 4., 3., 4., 4.]),
        ] {
            let build = |g: &mut Graph| {
                let x = g.input("x", DType::F32, &[2, 2]);
                g.pool_2d(x, &params(kind, [2, 2], [1, 1], [1, 1]))
            };
            check(build, &[("x", floats(&[1., 2., 3., 4.]))], &expected);
        }
    }
}
