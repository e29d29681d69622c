//! y[i, j] = x[i, j], -inf where i > n_past + j, i counting dim 0 and j dim 1, as ggml's diag_mask_inf.
//!
//! Result: dtype (F32, F16 or BF16) and shape of x.

use super::moves::{self, From};
use super::operand::NUMBERS;
use super::{Inferred, Rules, case::Case, check, value::Value};
use crate::graph::Graph;
use crate::tensor::{Tensor, TensorDef};
use llmrt_abi::{Op, op::DiagMaskParams};

impl Graph {
    /// `x` with -inf in row j past element n_past + j.
    pub fn diag_mask_inf(&mut self, x: Tensor, n_past: u32) -> Tensor {
        self.push(Op::DiagMaskInf, &[Some(x)], &DiagMaskParams { n_past }.to_bytes())
    }
}

pub(super) const RULES: Rules = Rules { infer, reference, decompose: None, cases };

pub(super) fn infer(src: &[Option<&TensorDef>], params: &[u8]) -> Inferred {
    check::params(DiagMaskParams::from_bytes(params))?;
    let x = check::numbers(src, 0, "x")?;
    Ok((x.dtype, x.ne))
}

fn reference(src: &[Option<&Value>], params: &[u8]) -> Value {
    masked(check::arg(src, 0), params, f32::NEG_INFINITY)
}

/// x, past the diagonal `value`.
pub(super) fn masked(x: &Value, params: &[u8], value: f32) -> Value {
    let n_past = DiagMaskParams::from_bytes(params).unwrap_or_default().n_past as u64;
    moves::gather(x.ne, &[x], |at| match at[0] > n_past + at[1] {
        true => From::Number(value),
        false => From::Source(0, at),
    })
}

fn cases() -> Vec<Case> {
    mask_cases(|g, x, n_past| {
        g.diag_mask_inf(x, n_past);
    })
}

pub(super) fn mask_cases(op: fn(&mut Graph, Tensor, u32)) -> Vec<Case> {
    let mut cases = vec![];
    for dtype in NUMBERS {
        for n_past in [0, 1, 5, 2000, u32::MAX] {
            for ne in [[10, 10, 3, 2], [10, 3, 2, 1], [3, 10, 1, 1], [1, 1, 1, 1], [1100, 4, 1, 1]] {
                cases.push(Case::new(format!("{dtype} {ne:?}, {n_past} past"), |g, _| {
                    let x = g.input("x", dtype, &ne);
                    op(g, x, n_past);
                }));
            }
        }
        cases.push(Case::new(format!("{dtype}, permuted"), |g, _| {
            let x = g.input("x", dtype, &[6, 9, 2]);
            let x = g.permute(x, [1, 0, 2, 3]);
            op(g, x, 2);
        }));
        cases.push(Case::new(format!("{dtype}, nothing"), |g, _| {
            let x = g.input("x", dtype, &[6, 0]);
            op(g, x, 2);
        }));
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::tests::{compute, floats};
    use llmrt_abi::DType;

    #[test]
    fn what_a_row_may_not_see_is_minus_infinity() {
        const INF: f32 = f32::NEG_INFINITY;
        for (n_past, expected) in [(0, [1., INF, INF, 4., 5., INF]), (1, [1., 2., INF, 4., 5., 6.])] {
            let build = |g: &mut Graph| {
                let x = g.input("x", DType::F32, &[3, 2]);
                g.diag_mask_inf(x, n_past)
            };
            assert_eq!(compute(build, &[("x", floats(&[1., 2., 3., 4., 5., 6.]))]), expected);
        }
    }
}
