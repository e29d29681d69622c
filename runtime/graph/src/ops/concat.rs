//! y = a followed by b, in one dim, as ggml's concat.
//!
//! Result: dtype of a and b, any; the shape of a, longer by b in the dim.

use super::moves::{self, From};
use super::{Inferred, Rules, case::Case, check, copy_cases, value::Value};
use crate::graph::Graph;
use crate::tensor::{Role, Tensor, TensorDef};
use llmrt_abi::{DType, Op, op::ConcatParams};

impl Graph {
    /// `a` and `b`, one after the other in dim `dim`; the other dims and the dtypes are equal.
    pub fn concat(&mut self, a: Tensor, b: Tensor, dim: usize) -> Tensor {
        let dim = u32::try_from(dim).unwrap_or(u32::MAX);
        self.push(Op::Concat, &[Some(a), Some(b)], &ConcatParams { dim }.to_bytes())
    }
}

pub(super) const RULES: Rules = Rules { infer, reference, decompose: None, cases };

fn infer(src: &[Option<&TensorDef>], params: &[u8]) -> Inferred {
    let dim = moves::dim(check::params(ConcatParams::from_bytes(params))?.dim)?;
    let (a, b) = (moves::any(src, 0, "a")?, moves::any(src, 1, "b")?);
    if a.dtype != b.dtype {
        return Err(format!("a is {}, b is {}; convert one with `cast`", a.dtype, b.dtype));
    }
    let mut ne = a.ne;
    if (0..4).any(|d| d != dim && a.ne[d] != b.ne[d]) {
        return Err(format!("a {:?} and b {:?} differ in more than dim {dim}", a.ne, b.ne));
    }
    ne[dim] = a.ne[dim].checked_add(b.ne[dim]).ok_or_else(|| format!("dim {dim} is too large"))?;
    Ok((a.dtype, ne))
}

fn reference(src: &[Option<&Value>], params: &[u8]) -> Value {
    let dim = ConcatParams::from_bytes(params).unwrap_or_default().dim as usize;
    let (a, b) = (check::arg(src, 0), check::arg(src, 1));
    let mut ne = a.ne;
    ne[dim] += b.ne[dim];
    let n_a = if dim == 0 { a.ne[0] / moves::per_block(a) } else { a.ne[dim] };
    moves::gather(ne, &[a, b], |mut at| {
        if at[dim] < n_a {
            return From::Source(0, at);
        }
        at[dim] -= n_a;
        From::Source(1, at)
    })
}

fn cases() -> Vec<Case> {
    let mut cases = vec![];
    for dim in 0..4 {
        for dtype in copy_cases::PLAIN {
            for (ne, n_b) in [([11, 3, 4, 2], 5), ([1030, 2, 1, 1], 1), ([1, 1, 1, 1], 1)] {
                cases.push(Case::new(format!("{dtype} {ne:?} and {n_b} in dim {dim}"), |g, ints| {
                    let a = copy_cases::operand(g, ints, dtype, dtype, &ne);
                    let mut b = ne;
                    b[dim] = n_b;
                    let b = copy_cases::operand(g, ints, dtype, dtype, &b);
                    g.concat(a, b, dim);
                }));
            }
            cases.push(Case::new(format!("{dtype}, views, in dim {dim}"), |g, ints| {
                let a = copy_cases::operand(g, ints, dtype, dtype, &[4, 6, 5, 3]);
                let a = g.permute(a, [2, 0, 1, 3]); // [5, 4, 6, 3]
                let a = g.slice(a, dim, 1, 2);
                let b = copy_cases::operand(g, ints, dtype, dtype, &[10, 4, 6, 3]);
                let b = if dim == 0 { b } else { g.slice(b, 0, 3, 5) };
                g.concat(a, b, dim);
            }));
        }
        for dtype in [DType::Q4_0, DType::Q8_0, DType::Q6_K, DType::IQ3_S] {
            cases.push(Case::new(format!("{dtype} in dim {dim}"), |g, _| {
                let a = g.state("a", dtype, &[256, 3, 2], Role::KCache);
                let mut ne = [256, 3, 2, 1];
                ne[dim] *= 2;
                let b = g.state("b", dtype, &ne, Role::KCache);
                g.concat(a, b, dim);
            }));
        }
        cases.push(Case::new(format!("something and nothing in dim {dim}"), |g, _| {
            let a = g.input("a", DType::F32, &[6, 3, 2]);
            let mut ne = [6, 3, 2, 1];
            ne[dim] = 0;
            let b = g.input("b", DType::F32, &ne);
            g.concat(a, b, dim);
        }));
    }
    cases
}
