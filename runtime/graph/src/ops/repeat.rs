//! y[i] = x[i mod n_x] in each dim, as ggml's repeat: x side by side until the requested dims are full.
//!
//! Result: dtype of x, any; the dims of the params, multiples of those of x.

use super::moves::{self, From};
use super::{Inferred, Rules, case::Case, check, copy_cases, value::Value};
use crate::graph::Graph;
use crate::tensor::{Role, Shape, Tensor, TensorDef, shape};
use llmrt_abi::{DType, Op, op::ShapeParams};

impl Graph {
    /// `x` side by side until `dims` are full, each a multiple of that of `x`.
    pub fn repeat(&mut self, x: Tensor, dims: &[u64]) -> Tensor {
        // A dim too large for the params becomes one that the shape rule refuses.
        let [ne0, ne1, ne2, ne3] = shape(dims).map(|n| u32::try_from(n).unwrap_or(u32::MAX));
        self.push(Op::Repeat, &[Some(x)], &ShapeParams { ne0, ne1, ne2, ne3 }.to_bytes())
    }
}

pub(super) const RULES: Rules = Rules { infer, reference, decompose: None, cases };

fn infer(src: &[Option<&TensorDef>], params: &[u8]) -> Inferred {
    let ne = dims(&check::params(ShapeParams::from_bytes(params))?);
    let x = moves::any(src, 0, "x")?;
    let fits = |(n, of): (u64, u64)| n < u32::MAX as u64 && n.checked_rem(of).unwrap_or(n) == 0;
    match ne.into_iter().zip(x.ne).all(fits) {
        true => Ok((x.dtype, ne)),
        false => Err(format!("{ne:?} is not full of x {:?}", x.ne)),
    }
}

fn reference(src: &[Option<&Value>], params: &[u8]) -> Value {
    let ne = dims(&ShapeParams::from_bytes(params).unwrap_or_default());
    let x = check::arg(src, 0);
    let row = x.ne[0] / moves::per_block(x);
    moves::gather(ne, &[x], |[i0, i1, i2, i3]| {
        From::Source(0, [i0 % row, i1 % x.ne[1], i2 % x.ne[2], i3 % x.ne[3]])
    })
}

fn dims(p: &ShapeParams) -> Shape {
    [p.ne0, p.ne1, p.ne2, p.ne3].map(u64::from)
}

fn cases() -> Vec<Case> {
    let mut cases = vec![];
    for dtype in copy_cases::PLAIN {
        for (x, y) in [
            ([10, 5, 4, 3], [10, 5, 4, 3]),
            ([10, 5, 4, 3], [20, 5, 4, 3]),
            ([10, 5, 4, 3], [10, 15, 4, 3]),
            ([10, 5, 4, 3], [10, 5, 8, 6]),
            ([1, 5, 1, 1], [1030, 5, 2, 1]),
            ([3, 1, 2, 1], [9, 4, 2, 2]),
            ([1, 1, 1, 1], [7, 3, 2, 2]),
        ] {
            cases.push(Case::new(format!("{dtype} {x:?} to {y:?}"), |g, ints| {
                let x = copy_cases::operand(g, ints, dtype, dtype, &x);
                g.repeat(x, &y);
            }));
        }
        cases.push(Case::new(format!("{dtype}, permuted"), |g, ints| {
            let x = copy_cases::operand(g, ints, dtype, dtype, &[4, 3, 2]);
            let x = g.permute(x, [2, 0, 1, 3]);
            g.repeat(x, &[4, 8, 3]);
        }));
        cases.push(Case::new(format!("{dtype}, a slice"), |g, ints| {
            let x = copy_cases::operand(g, ints, dtype, dtype, &[40, 5]);
            let x = g.slice(x, 0, 7, 11);
            g.repeat(x, &[33, 5, 2]);
        }));
    }
    for dtype in [DType::Q4_0, DType::Q8_0, DType::Q4_K, DType::IQ1_S, DType::MXFP4] {
        cases.push(Case::new(format!("rows and blocks of {dtype}"), |g, _| {
            let x = g.weight("x", dtype, &[256, 3], Role::Other);
            g.repeat(x, &[512, 6, 2]);
        }));
    }
    for d in 0..4 {
        cases.push(Case::new(format!("nothing along dim {d}, many times"), |g, _| {
            let (mut x, mut y) = ([3, 2, 1, 2], [6, 2, 5, 2]);
            (x[d], y[d]) = (0, 0);
            let x = g.input("x", DType::F32, &x);
            g.repeat(x, &y);
        }));
    }
    cases
}
