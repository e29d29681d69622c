//! y = Σ x over each row.

use super::{Inferred, Rules, case::Case, check, value::Value};
use crate::graph::Graph;
use crate::tensor::{Tensor, TensorDef};
use llmrt_abi::{DType, Op};

impl Graph {
    /// Sums of the rows of `x` [n, ...]: [1, ...].
    pub fn sum_rows(&mut self, x: Tensor) -> Tensor {
        self.push(Op::SumRows, &[Some(x)], &[])
    }
}

pub(super) const RULES: Rules = Rules { infer, reference, decompose: None, cases };

fn infer(src: &[Option<&TensorDef>], _params: &[u8]) -> Inferred {
    let ne = check::floats(src, 0, "x")?.ne;
    Ok((DType::F32, [1, ne[1], ne[2], ne[3]]))
}

fn reference(src: &[Option<&Value>], _params: &[u8]) -> Value {
    let x = check::arg(src, 0);
    let sum = |i| x.row(i).iter().map(|&v| v as f64).sum::<f64>() as f32;
    Value::f32([1, x.ne[1], x.ne[2], x.ne[3]], (0..x.n_rows()).map(sum).collect())
}

fn cases() -> Vec<Case> {
    let mut cases = vec![];
    for ne in [[64, 5, 4, 3], [1, 1, 1, 1], [33, 7, 1, 1], [4096, 2, 1, 1]] {
        cases.push(Case::new(format!("rows of {ne:?}"), |g, _| {
            let x = g.input("x", DType::F32, &ne);
            g.sum_rows(x);
        }));
    }
    cases.push(Case::new("strided rows", |g, _| {
        let x = g.input("x", DType::F32, &[30, 4]);
        let x = g.slice(x, 0, 7, 11);
        g.sum_rows(x);
    }));
    cases
}
