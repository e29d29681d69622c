//! y[i] = x[i div n] in one dim: each element n times, one after the other.
//!
//! Result: dtype of x; its shape with the dim n times as long.

use super::moves::{self, From};
use super::{Inferred, Rules, case::Case, check, copy_cases, value::Value};
use crate::graph::Graph;
use crate::tensor::{Role, Tensor, TensorDef};
use llmrt_abi::{DType, Op, op::RepeatInterleaveParams};

impl Graph {
    /// Each element of dim `dim` of `x` `n` times, one after the other.
    pub fn repeat_interleave(&mut self, x: Tensor, dim: usize, n: u32) -> Tensor {
        let dim = u32::try_from(dim).unwrap_or(u32::MAX);
        self.push(Op::RepeatInterleave, &[Some(x)], &RepeatInterleaveParams { dim, n }.to_bytes())
    }
}

pub(super) const RULES: Rules = Rules { infer, reference, decompose: None, cases };

fn infer(src: &[Option<&TensorDef>], params: &[u8]) -> Inferred {
    let p = check::params(RepeatInterleaveParams::from_bytes(params))?;
    let dim = moves::dim(p.dim)?;
    let x = if dim == 0 { moves::plain(src, 0, "x")? } else { moves::any(src, 0, "x")? };
    let mut ne = x.ne;
    ne[dim] = ne[dim].checked_mul(p.n.into()).ok_or_else(|| format!("dim {dim} is too large"))?;
    match p.n {
        0 => Err("each element 0 times, expected at least once".into()),
        _ => Ok((x.dtype, ne)),
    }
}

fn reference(src: &[Option<&Value>], params: &[u8]) -> Value {
    let p = RepeatInterleaveParams::from_bytes(params).unwrap_or_default();
    let x = check::arg(src, 0);
    let mut ne = x.ne;
    ne[p.dim as usize] *= p.n as u64;
    moves::gather(ne, &[x], |mut at| {
        at[p.dim as usize] /= p.n as u64;
        From::Source(0, at)
    })
}

fn cases() -> Vec<Case> {
    let mut cases = vec![];
    for dim in 0..4 {
        for n in [1, 2, 5] {
            for dtype in copy_cases::PLAIN {
                cases.push(Case::new(format!("{dtype}, {n} times in dim {dim}"), |g, ints| {
                    let x = copy_cases::operand(g, ints, dtype, dtype, &[7, 4, 3, 2]);
                    g.repeat_interleave(x, dim, n);
                }));
            }
            cases.push(Case::new(format!("permuted, {n} times in dim {dim}"), |g, _| {
                let x = g.input("x", DType::F32, &[4, 9, 3, 2]);
                let x = g.permute(x, [1, 0, 3, 2]);
                let x = g.slice(x, 0, 2, 6);
                g.repeat_interleave(x, dim, n);
            }));
        }
        cases.push(Case::new(format!("rows of 1030 in dim {dim}"), |g, _| {
            let x = g.input("x", DType::F16, &[1030, 2]);
            g.repeat_interleave(x, dim, 3);
        }));
        cases.push(Case::new(format!("nothing in dim {dim}"), |g, _| {
            let x = g.input("x", DType::F32, &[2, 0]);
            g.repeat_interleave(x, dim, 3);
        }));
    }
    for dtype in [DType::Q4_0, DType::Q6_K] {
        cases.push(Case::new(format!("rows of {dtype}"), |g, _| {
            let x = g.state("x", dtype, &[256, 3, 2], Role::KCache);
            g.repeat_interleave(x, 1, 4);
        }));
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::tests::{check, floats};

    #[test]
    fn each_element_is_followed_by_its_copies() {
        let build = |g: &mut Graph| {
            let x = g.input("x", DType::F32, &[3]);
            g.repeat_interleave(x, 0, 2)
        };
        check(build, &[("x", floats(&[1., 2., 3.]))], &[1., 1., 2., 2., 3., 3.]);
    }
}
