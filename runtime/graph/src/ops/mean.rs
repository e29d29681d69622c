//! y = (Σ x) / n over each row of n elements, n > 0. Semantics: ggml's mean.
//!
//! Result: F32 [1, ne1, ne2, ne3] of x F32 [n, ne1, ne2, ne3].

use super::sum_rows::row_cases;
use super::{Inferred, Rules, check, value::Value};
use crate::graph::Graph;
use crate::tensor::{Tensor, TensorDef};
use llmrt_abi::{DType, Op};

impl Graph {
    /// Means of the rows of `x` [n, ...]: [1, ...].
    pub fn mean(&mut self, x: Tensor) -> Tensor {
        self.push(Op::Mean, &[Some(x)], &[])
    }
}

pub(super) const RULES: Rules = Rules { infer, reference, decompose: None, cases: || row_cases(Graph::mean) };

fn infer(src: &[Option<&TensorDef>], _params: &[u8]) -> Inferred {
    match check::any_floats(src, 0, "x")?.ne {
        [0, ne1, ne2, ne3] if ![ne1, ne2, ne3].contains(&0) => Err("empty rows have no mean".into()),
        [_, ne1, ne2, ne3] => Ok((DType::F32, [1, ne1, ne2, ne3])),
    }
}

fn reference(src: &[Option<&Value>], _params: &[u8]) -> Value {
    let x = check::arg(src, 0);
    let mean = |i| (x.row(i).iter().map(|&v| v as f64).sum::<f64>() / x.ne[0] as f64) as f32;
    Value::f32([1, x.ne[1], x.ne[2], x.ne[3]], (0..x.n_rows()).map(mean).collect())
}
