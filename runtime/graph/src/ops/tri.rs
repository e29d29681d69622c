//! y[i, j] = x[i, j] within a triangle, else 0, i counting dim 0 and j dim 1, as ggml's tri: i ≥ j is the upper
//! triangle with the diagonal.
//!
//! Result: dtype (any plain one) and shape of x.

use super::moves::{self, From};
use super::{Inferred, Rules, case::Case, check, copy_cases, value::Value};
use crate::graph::Graph;
use crate::tensor::{Tensor, TensorDef};
use llmrt_abi::{DType, Op, op::TriParams};

/// What is kept of a matrix.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u32)]
pub enum Triangle {
    /// Above the diagonal and on it.
    UpperWithDiagonal = 0,
    /// Above the diagonal.
    Upper = 1,
    /// Below the diagonal and on it.
    LowerWithDiagonal = 2,
    /// Below the diagonal.
    Lower = 3,
}

impl Triangle {
    /// All, in the order of their numbers.
    pub const ALL: [Triangle; 4] =
        [Triangle::UpperWithDiagonal, Triangle::Upper, Triangle::LowerWithDiagonal, Triangle::Lower];

    /// Whether element `i` of row `j` is kept.
    fn has(self, i: u64, j: u64) -> bool {
        match self {
            Triangle::UpperWithDiagonal => i >= j,
            Triangle::Upper => i > j,
            Triangle::LowerWithDiagonal => i <= j,
            Triangle::Lower => i < j,
        }
    }
}

impl Graph {
    /// A triangle of each matrix [n, m] of `x`, the rest 0.
    pub fn tri(&mut self, x: Tensor, kept: Triangle) -> Tensor {
        self.push(Op::Tri, &[Some(x)], &TriParams { kind: kept as u32 }.to_bytes())
    }
}

pub(super) const RULES: Rules = Rules { infer, reference, decompose: None, cases };

fn infer(src: &[Option<&TensorDef>], params: &[u8]) -> Inferred {
    let kind = check::params(TriParams::from_bytes(params))?.kind;
    if Triangle::ALL.get(kind as usize).is_none() {
        return Err(format!("triangle {kind}, expected 0 to 3"));
    }
    let x = moves::plain(src, 0, "x")?;
    Ok((x.dtype, x.ne))
}

fn reference(src: &[Option<&Value>], params: &[u8]) -> Value {
    let kind = TriParams::from_bytes(params).unwrap_or_default().kind;
    let kept = Triangle::ALL.get(kind as usize).copied().unwrap_or(Triangle::UpperWithDiagonal);
    let x = check::arg(src, 0);
    moves::gather(x.ne, &[x], |at| match kept.has(at[0], at[1]) {
        true => From::Source(0, at),
        false => From::Number(0.0),
    })
}

fn cases() -> Vec<Case> {
    let mut cases = vec![];
    for kept in Triangle::ALL {
        for dtype in copy_cases::PLAIN {
            for ne in [[10, 10, 4, 3], [1, 1, 1, 1], [5, 9, 2, 1], [9, 5, 1, 1]] {
                cases.push(Case::new(format!("{kept:?} of {dtype} {ne:?}"), |g, ints| {
                    let x = copy_cases::operand(g, ints, dtype, dtype, &ne);
                    g.tri(x, kept);
                }));
            }
        }
        cases.push(Case::new(format!("{kept:?} of a large matrix, transposed"), |g, _| {
            let x = g.input("x", DType::F32, &[70, 1030]);
            let x = g.permute(x, [1, 0, 2, 3]);
            g.tri(x, kept);
        }));
        cases.push(Case::new(format!("{kept:?} of nothing"), |g, _| {
            let x = g.input("x", DType::F32, &[0, 3]);
            g.tri(x, kept);
        }));
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::tests::{check, floats};

    #[test]
    fn four_triangles_are_kept() {
        for (kept, expected) in [
            (Triangle::UpperWithDiagonal, [1., 2., 0., 4.]),
            (Triangle::Upper, [0., 2., 0., 0.]),
            (Triangle::LowerWithDiagonal, [1., 0., 3., 4.]),
            (Triangle::Lower, [0., 0., 3., 0.]),
        ] {
            let build = |g: &mut Graph| {
                let x = g.input("x", DType::F32, &[2, 2]);
                g.tri(x, kept)
            };
            check(build, &[("x", floats(&[1., 2., 3., 4.]))], &expected);
        }
    }
}
