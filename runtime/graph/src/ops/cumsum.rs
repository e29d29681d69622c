//! yᵢ = x₀ + … + xᵢ along each row. Semantics: ggml's cumsum.
//!
//! Result: F32 in the shape of x, which is F32.

use super::sum_rows::{empty_rows, row_cases};
use super::{Inferred, Rules, check, value::Value};
use crate::graph::Graph;
use crate::tensor::{Tensor, TensorDef};
use llmrt_abi::{DType, Op};

impl Graph {
    /// Running sums of the rows of `x`, in its shape.
    pub fn cumsum(&mut self, x: Tensor) -> Tensor {
        self.push(Op::Cumsum, &[Some(x)], &[])
    }
}

pub(super) const RULES: Rules = Rules {
    infer,
    reference,
    decompose: None,
    cases: || row_cases(Graph::cumsum).into_iter().chain([empty_rows(Graph::cumsum)]).collect(),
};

fn infer(src: &[Option<&TensorDef>], _params: &[u8]) -> Inferred {
    Ok((DType::F32, check::any_floats(src, 0, "x")?.ne))
}

fn reference(src: &[Option<&Value>], _params: &[u8]) -> Value {
    let x = check::arg(src, 0);
    let mut y = Vec::with_capacity(x.floats().len());
    for i in 0..x.n_rows() {
        let mut sum = 0.0;
        y.extend(x.row(i).iter().map(|&v| {
            sum += v as f64;
            sum as f32
        }));
    }
    Value::f32(x.ne, y)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{check, floats};
    use super::*;

    /// An op on the row 1 3 2 3 0.
    fn is(op: impl Fn(&mut Graph, Tensor) -> Tensor, expected: &[f32]) {
        let build = |g: &mut Graph| {
            let x = g.input("x", DType::F32, &[5]);
            op(g, x)
        };
        check(build, &[("x", floats(&[1., 3., 2., 3., 0.]))], expected);
    }

    #[test]
    fn sums_and_means_of_a_row() {
        is(Graph::cumsum, &[1., 4., 6., 9., 9.]);
        is(Graph::sum_rows, &[9.]);
        is(Graph::sum, &[9.]);
        is(Graph::mean, &[1.8]);
    }

    #[test]
    fn nothing_adds_up_to_zero() {
        let of_empty_row = |op: fn(&mut Graph, Tensor) -> Tensor| {
            move |g: &mut Graph, x| {
                let x = g.slice(x, 0, 5, 0);
                op(g, x)
            }
        };
        is(of_empty_row(Graph::sum_rows), &[0.]);
        is(of_empty_row(Graph::sum), &[0.]);
        is(of_empty_row(Graph::cumsum), &[]);
    }
}
