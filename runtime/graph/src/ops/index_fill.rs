//! y = x, `value` where the index in one dim is among the indices. An index outside the dim fills nothing.
//!
//! Result: dtype (any plain one) and shape of x; indices are I32 [n].

use super::moves::{self, From};
use super::{Inferred, Rules, case::Case, check, copy_cases, value::Value};
use crate::graph::Graph;
use crate::tensor::{Tensor, TensorDef};
use llmrt_abi::{DType, Op, op::IndexFillParams};

impl Graph {
    /// `x` with `value` at `indices` [n] (I32) of dim `dim`; integers drop the value's fraction.
    pub fn index_fill(&mut self, x: Tensor, indices: Tensor, dim: usize, value: f32) -> Tensor {
        let dim = u32::try_from(dim).unwrap_or(u32::MAX);
        self.push(Op::IndexFill, &[Some(x), Some(indices)], &IndexFillParams { dim, value }.to_bytes())
    }
}

pub(super) const RULES: Rules = Rules { infer, reference, decompose: None, cases };

fn infer(src: &[Option<&TensorDef>], params: &[u8]) -> Inferred {
    moves::dim(check::params(IndexFillParams::from_bytes(params))?.dim)?;
    let x = moves::plain(src, 0, "x")?;
    let indices = check::ints(src, 1, "indices")?;
    check::vector(indices, indices.ne[0], "indices")?;
    Ok((x.dtype, x.ne))
}

fn reference(src: &[Option<&Value>], params: &[u8]) -> Value {
    let p = IndexFillParams::from_bytes(params).unwrap_or_default();
    let (x, indices) = (check::arg(src, 0), check::arg(src, 1));
    moves::gather(x.ne, &[x], |at| {
        let filled = indices.ints().iter().any(|&i| i as i64 == at[p.dim as usize] as i64);
        if filled { From::Number(p.value) } else { From::Source(0, at) }
    })
}

fn cases() -> Vec<Case> {
    let mut cases = vec![];
    for dim in 0..4 {
        for dtype in copy_cases::PLAIN {
            for indices in [vec![0], vec![1, 0, 1], vec![-1, 1, 1000]] {
                cases.push(Case::new(format!("{dtype} at {indices:?} of dim {dim}"), |g, ints| {
                    let x = copy_cases::operand(g, ints, dtype, dtype, &[9, 4, 3, 2]);
                    let at = g.input("indices", DType::I32, &[indices.len() as u64]);
                    ints.push((at, indices.clone()));
                    g.index_fill(x, at, dim, -2.5);
                }));
            }
        }
        cases.push(Case::new(format!("permuted, dim {dim}"), |g, ints| {
            let x = g.input("x", DType::F32, &[4, 1100, 3, 2]);
            let x = g.permute(x, [1, 0, 3, 2]);
            let at = g.input("indices", DType::I32, &[2]);
            ints.push((at, vec![1, 1099]));
            g.index_fill(x, at, dim, 0.0);
        }));
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::tests::{check, floats, ints};

    #[test]
    fn rows_are_filled() {
        let build = |g: &mut Graph| {
            let x = g.input("x", DType::F32, &[2, 3]);
            let at = g.input("at", DType::I32, &[2]);
            g.index_fill(x, at, 1, 9.0)
        };
        let x = floats(&[1., 2., 3., 4., 5., 6.]);
        check(build, &[("x", x), ("at", ints(&[2, 0]))], &[9., 9., 3., 4., 9., 9.]);
    }
}
