//! y = value, in the shape and dtype of x, as ggml's fill. Integers drop the value's fraction.
//!
//! Result: dtype (any plain one) and shape of x.

use super::moves::{self, From};
use super::{Inferred, Rules, case::Case, check, copy_cases, value::Value};
use crate::graph::Graph;
use crate::tensor::{Tensor, TensorDef};
use llmrt_abi::{DType, Op, op::FillParams};

impl Graph {
    /// `value` in the shape and dtype of `x`, whose elements do not matter.
    pub fn fill(&mut self, x: Tensor, value: f32) -> Tensor {
        self.push(Op::Fill, &[Some(x)], &FillParams { value }.to_bytes())
    }
}

pub(super) const RULES: Rules = Rules { infer, reference, decompose: None, cases };

fn infer(src: &[Option<&TensorDef>], params: &[u8]) -> Inferred {
    check::params(FillParams::from_bytes(params))?;
    let x = moves::plain(src, 0, "x")?;
    Ok((x.dtype, x.ne))
}

fn reference(src: &[Option<&Value>], params: &[u8]) -> Value {
    let value = FillParams::from_bytes(params).unwrap_or_default().value;
    let x = check::arg(src, 0);
    moves::gather(x.ne, &[x], |_| From::Number(value))
}

fn cases() -> Vec<Case> {
    let mut cases = vec![];
    for dtype in copy_cases::PLAIN {
        for value in [0.0, 1.0, -2.75, 3.1e-6, 300.5] {
            for ne in [[303, 7, 2, 1], [1, 1, 1, 1], [5, 4, 3, 2]] {
                cases.push(Case::new(format!("{dtype} {ne:?} with {value}"), |g, _| {
                    let x = g.input("x", dtype, &ne);
                    g.fill(x, value);
                }));
            }
        }
    }
    cases.push(Case::new("the shape of a view", |g, _| {
        let x = g.input("x", DType::F16, &[9, 4]);
        let x = g.permute(x, [1, 0, 2, 3]);
        g.fill(x, 0.5);
    }));
    cases
}
