//! y[o] = the largest or the mean of x[o·stride - pad ..][.. kernel] over rows. The padding has no elements: the mean is
//! of those that are there, 0 of none, and the largest of none is the lowest f32 (ggml's `pool_1d`).
//!
//! Result: F32 [(n + 2·pad - kernel) div stride + 1, ne1, ne2, ne3] of x F32, F16 or BF16.

use super::operand::NUMBERS;
use super::pool_2d::{AVERAGE, MAX, operands, pool};
use super::{Inferred, Rules, case::Case, check, value::Value, window::Window};
use crate::graph::Graph;
use crate::tensor::{Shape, Tensor, TensorDef};
use llmrt_abi::{DType, Op, op::PoolParams};

impl Graph {
    /// Windows of the rows of `x` (F32, F16 or BF16): their largest elements or means, F32.
    pub fn pool_1d(&mut self, x: Tensor, kind: u32, kernel: u32, stride: u32, pad: u32) -> Tensor {
        let p =
            PoolParams { kind, kernel0: kernel, stride0: stride, pad0: pad, kernel1: 1, stride1: 1, pad1: 0 };
        self.push(Op::Pool1d, &[Some(x)], &p.to_bytes())
    }
}

pub(super) const RULES: Rules = Rules { infer, reference, decompose: None, cases };

fn infer(src: &[Option<&TensorDef>], params: &[u8]) -> Inferred {
    let (p, x) = operands(src, params)?;
    Ok((DType::F32, result_shape(x, &p)?))
}

fn result_shape(x: Shape, p: &PoolParams) -> Result<Shape, String> {
    Ok([window(p).n_out(x[0])?, x[1], x[2], x[3]])
}

fn window(p: &PoolParams) -> Window {
    Window::new(p.kernel0.into(), p.stride0, p.pad0, 1)
}

fn reference(src: &[Option<&Value>], params: &[u8]) -> Value {
    let p = PoolParams::from_bytes(params).unwrap_or_default();
    let x = check::arg(src, 0);
    let ne = result_shape(x.ne, &p).unwrap_or_default();
    let mut y = vec![];
    for i in 0..x.n_rows() {
        for out in 0..ne[0] {
            let taps = (0..window(&p).size).filter_map(|tap| window(&p).at(out, tap, x.ne[0]));
            let seen: Vec<f32> = taps.map(|at| x.row(i)[at as usize]).collect();
            y.push(pool(p.kind, &seen, seen.len().max(1)));
        }
    }
    Value::f32(ne, y)
}

fn cases() -> Vec<Case> {
    let mut cases = vec![];
    let mut add = |dtype: DType, kind: u32, x: [u64; 4], [kernel, stride, pad]: [u32; 3]| {
        let what = if kind == MAX { "largest" } else { "mean" };
        let name = format!("{what} of {dtype} {x:?}, kernel {kernel}, stride {stride}, pad {pad}");
        cases.push(Case::new(name, |g, _| {
            let x = g.input("x", dtype, &x);
            g.pool_1d(x, kind, kernel, stride, pad);
        }));
    };
    for dtype in NUMBERS {
        for kind in [MAX, AVERAGE] {
            for kernel in [1, 3] {
                for stride in [1, 2] {
                    for pad in [0, 1] {
                        if kernel == 1 && pad == 1 && kind == MAX {
                            continue;
                        }
                        for x in [[10, 3, 2, 1], [11, 1, 3, 2], [128, 2, 1, 3]] {
                            add(dtype, kind, x, [kernel, stride, pad]);
                        }
                    }
                }
            }
            add(dtype, kind, [1, 1, 1, 1], [1, 1, 0]);
            add(dtype, kind, [5000, 2, 1, 1], [4, 2, 1]);
            add(dtype, kind, [1500, 2, 1, 1], [50, 50, 10]);
        }
        add(dtype, AVERAGE, [4, 2, 1, 1], [2, 3, 4]);
        add(dtype, MAX, [4, 2, 1, 1], [2, 3, 4]);
    }
    for (kind, dtype) in [(MAX, DType::F32), (AVERAGE, DType::F16)] {
        cases.push(Case::new(format!("{dtype} rows with gaps"), |g, _| {
            let x = g.input("x", dtype, &[6, 40]);
            let x = g.permute(x, [1, 0, 2, 3]);
            g.pool_1d(x, kind, 3, 2, 1);
        }));
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::super::tests::{check, floats};
    use super::*;

    #[test]
    fn a_mean_counts_what_is_there_and_nothing_has_none() {
        for (kind, pad, expected) in [
            (AVERAGE, 1, &[1.5, 2., 2.5][..]),
            (AVERAGE, 3, &[0., 1., 1.5, 2., 2.5, 3., 0.]),
            (MAX, 1, &[2., 3., 3.]),
            (MAX, 3, &[f32::MIN, 1., 2., 3., 3., 3., f32::MIN]),
        ] {
            let build = |g: &mut Graph| {
                let x = g.input("x", DType::F32, &[3]);
                g.pool_1d(x, kind, 3, 1, pad)
            };
            check(build, &[("x", floats(&[1., 2., 3.]))], expected);
        }
    }
}
