//! y = Σ x over each row; of empty rows it is 0. Semantics: ggml's sum_rows.
//!
//! Result: F32 [1, ne1, ne2, ne3] of x F32 [n, ne1, ne2, ne3].

use super::operand::{Layout, operand};
use super::{Inferred, Rules, case::Case, check, value::Value};
use crate::graph::Graph;
use crate::tensor::{Shape, Tensor, TensorDef};
use llmrt_abi::{DType, Op};

impl Graph {
    /// Sums of the rows of `x` [n, ...]: [1, ...].
    pub fn sum_rows(&mut self, x: Tensor) -> Tensor {
        self.push(Op::SumRows, &[Some(x)], &[])
    }
}

pub(super) const RULES: Rules = Rules { infer, reference, decompose: None, cases: || cases(Graph::sum_rows) };

fn infer(src: &[Option<&TensorDef>], _params: &[u8]) -> Inferred {
    let ne = check::any_floats(src, 0, "x")?.ne;
    Ok((DType::F32, [1, ne[1], ne[2], ne[3]]))
}

fn reference(src: &[Option<&Value>], _params: &[u8]) -> Value {
    let x = check::arg(src, 0);
    let sum = |i| x.row(i).iter().map(|&v| v as f64).sum::<f64>() as f32;
    Value::f32([1, x.ne[1], x.ne[2], x.ne[3]], (0..x.n_rows()).map(sum).collect())
}

fn cases(op: fn(&mut Graph, Tensor) -> Tensor) -> Vec<Case> {
    row_cases(op).into_iter().chain([empty_rows(op)]).collect()
}

/// Rows of many shapes and layouts, for ops that make a number or a row of each; no row is empty.
pub(super) fn row_cases(op: impl Fn(&mut Graph, Tensor) -> Tensor) -> Vec<Case> {
    let case = |ne: Shape, layout| {
        Case::new(format!("{ne:?}, {layout:?}"), |g, _| {
            let x = operand(g, "x", DType::F32, ne, layout);
            op(g, x);
        })
    };
    let mut cases = vec![];
    for ne in [
        [64, 5, 4, 3],
        [1, 1, 1, 1],
        [1, 9, 1, 1],
        [2, 4500, 1, 1],
        [33, 7, 1, 1],
        [15, 3, 2, 2],
        [16, 3, 1, 1],
        [17, 3, 1, 1],
        [1023, 2, 1, 1],
        [1025, 3, 1, 1],
        [4096, 2, 1, 1],
        [5000, 1, 1, 1],
        [4, 0, 1, 1],
        [3, 2, 0, 1],
    ] {
        cases.push(case(ne, Layout::Dense));
    }
    for layout in Layout::STRIDED {
        for ne in [[33, 5, 3, 2], [1, 5, 3, 2], [33, 1, 1, 1], [1100, 5, 1, 1]] {
            cases.push(case(ne, layout));
        }
    }
    cases
}

/// Empty rows that are part of others.
pub(super) fn empty_rows(op: impl Fn(&mut Graph, Tensor) -> Tensor) -> Case {
    Case::new("empty rows", |g, _| {
        let x = g.input("x", DType::F32, &[30, 4]);
        let x = g.slice(x, 0, 30, 0);
        op(g, x);
    })
}
