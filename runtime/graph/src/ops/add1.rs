//! y = a + b, b of one element; computed in f32, in the dtype of a. Semantics: ggml's add1.
//!
//! Result: dtype and shape of a. a and b are F32, F16 or BF16, b is [1].

use super::operand::{Layout, NUMBERS, operand, rounding};
use super::{Inferred, Rules, case::Case, check, value::Value};
use crate::graph::Graph;
use crate::tensor::{Tensor, TensorDef};
use llmrt_abi::Op;

impl Graph {
    /// a + b; `b` has one element.
    pub fn add1(&mut self, a: Tensor, b: Tensor) -> Tensor {
        self.push(Op::Add1, &[Some(a), Some(b)], &[])
    }
}

pub(super) const RULES: Rules = Rules { infer, reference, decompose: None, cases };

fn infer(src: &[Option<&TensorDef>], _params: &[u8]) -> Inferred {
    let (a, b) = (check::numbers(src, 0, "a")?, check::numbers(src, 1, "b")?);
    check::vector(b, 1, "b")?;
    Ok((a.dtype, a.ne))
}

fn reference(src: &[Option<&Value>], _params: &[u8]) -> Value {
    let (a, b) = (check::arg(src, 0), check::arg(src, 1));
    Value::f32(a.ne, a.floats().iter().map(|a| a + b.floats()[0]).collect())
}

fn cases() -> Vec<Case> {
    let mut cases = vec![];
    for dtype in NUMBERS {
        for of_b in NUMBERS {
            for ne in [[10, 5, 4, 3], [1, 1, 1, 1], [1025, 5, 1, 1], [0, 3, 1, 1], [3, 0, 2, 1]] {
                cases.push(
                    Case::new(format!("{dtype} {ne:?} and {of_b}"), |g, _| {
                        let a = g.input("a", dtype, &ne);
                        let b = g.input("b", of_b, &[1]);
                        g.add1(a, b);
                    })
                    .nmse(rounding(dtype)),
                );
            }
        }
        for layout in Layout::STRIDED {
            cases.push(
                Case::new(format!("{dtype}, {layout:?}, and an element of a row"), |g, _| {
                    let a = operand(g, "a", dtype, [33, 5, 3, 2], layout);
                    let b = g.input("b", dtype, &[9]);
                    let b = g.slice(b, 0, 4, 1);
                    g.add1(a, b);
                })
                .nmse(rounding(dtype)),
            );
        }
    }
    cases
}
