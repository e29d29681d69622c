//! y = Σ x over all elements, [1], in the dtype of x; of an empty x it is 0. Semantics: ggml's sum.
//!
//! Result: dtype of x (F32, F16 or BF16), [1].

use super::operand::{Layout, NUMBERS, operand, rounding};
use super::{Inferred, Rules, case::Case, check, value::Value};
use crate::graph::Graph;
use crate::tensor::{Tensor, TensorDef};
use llmrt_abi::Op;

impl Graph {
    /// Sum of all elements of `x`: [1].
    pub fn sum(&mut self, x: Tensor) -> Tensor {
        self.push(Op::Sum, &[Some(x)], &[])
    }
}

pub(super) const RULES: Rules = Rules { infer, reference, decompose: None, cases };

fn infer(src: &[Option<&TensorDef>], _params: &[u8]) -> Inferred {
    Ok((check::numbers(src, 0, "x")?.dtype, [1; 4]))
}

fn reference(src: &[Option<&Value>], _params: &[u8]) -> Value {
    let sum = check::arg(src, 0).floats().iter().map(|&v| v as f64).sum::<f64>();
    Value::f32([1; 4], vec![sum as f32])
}

fn cases() -> Vec<Case> {
    let mut cases = vec![];
    for dtype in NUMBERS {
        for ne in [
            [64, 5, 4, 3],
            [1, 1, 1, 1],
            [33, 7, 1, 1],
            [1, 77, 1, 1],
            [4097, 3, 1, 1],
            [0, 4, 1, 1],
            [4, 0, 1, 1],
        ] {
            cases.push(
                Case::new(format!("{dtype} {ne:?}"), |g, _| {
                    let x = g.input("x", dtype, &ne);
                    g.sum(x);
                })
                .nmse(rounding(dtype)),
            );
        }
        for layout in Layout::STRIDED {
            cases.push(
                Case::new(format!("{dtype}, {layout:?}"), |g, _| {
                    let x = operand(g, "x", dtype, [33, 5, 3, 2], layout);
                    g.sum(x);
                })
                .nmse(rounding(dtype)),
            );
        }
    }
    cases
}
