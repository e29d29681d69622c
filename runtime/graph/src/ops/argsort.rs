//! y = indices that sort each row, I32: smallest or largest first; equal elements keep the lower index first, NaN comes
//! last. Semantics: ggml's argsort, which leaves the order of equal elements open.
//!
//! Result: I32 in the shape of x, which is F32.

use super::sum_rows::{empty_rows, row_cases};
use super::{Inferred, Rules, case::Case, check, value::Value};
use crate::graph::Graph;
use crate::tensor::{Tensor, TensorDef};
use llmrt_abi::{DType, Op, op::ArgsortParams};

impl Graph {
    /// I32 indices that sort the rows of `x`, in its shape: largest first if `descending`.
    pub fn argsort(&mut self, x: Tensor, descending: bool) -> Tensor {
        self.push(Op::Argsort, &[Some(x)], &ArgsortParams { descending: descending as u32 }.to_bytes())
    }
}

pub(super) const RULES: Rules = Rules { infer, reference, decompose: None, cases };

fn infer(src: &[Option<&TensorDef>], params: &[u8]) -> Inferred {
    let descending = check::params(ArgsortParams::from_bytes(params))?.descending;
    let ne = check::any_floats(src, 0, "x")?.ne;
    match descending < 2 && ne[0] <= i32::MAX as u64 {
        true => Ok((DType::I32, ne)),
        false => Err(format!("order {descending} of rows of {}, expected 0 or 1 and below 2^31", ne[0])),
    }
}

fn reference(src: &[Option<&Value>], params: &[u8]) -> Value {
    let descending = ArgsortParams::from_bytes(params).unwrap_or_default().descending == 1;
    let x = check::arg(src, 0);
    let mut y = Vec::with_capacity(x.floats().len());
    for i in 0..x.n_rows() {
        let row = x.row(i);
        let mut ids: Vec<i32> = (0..row.len() as i32).collect();
        // A stable sort.
        ids.sort_by(|&i, &j| {
            let (a, b) = (row[i as usize], row[j as usize]);
            let (first, second) = if descending { (b, a) } else { (a, b) };
            first.partial_cmp(&second).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
        });
        y.extend(ids);
    }
    Value::i32(x.ne, y)
}

fn cases() -> Vec<Case> {
    let mut cases = vec![];
    for descending in [false, true] {
        let named = |case: Case| Case { name: format!("{}, descending {descending}", case.name), ..case };
        let op = |g: &mut Graph, x| g.argsort(x, descending);
        cases.extend(row_cases(op).into_iter().map(named));
        cases.push(named(empty_rows(op)));
        for scale in [0.0, 3.0, 20.0] {
            cases.push(named(Case::new(format!("equal elements, {scale}"), |g, _| {
                let x = g.input("x", DType::F32, &[100, 7]);
                let x = g.scale(x, scale);
                let x = g.round(x);
                g.argsort(x, descending);
            })));
        }
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::super::tests::{check, floats};
    use super::*;

    #[test]
    fn equals_keep_their_order_and_nan_comes_last() {
        for (descending, expected) in [(false, [4., 1., 3., 2., 0.]), (true, [2., 1., 3., 4., 0.])] {
            let build = |g: &mut Graph| {
                let x = g.input("x", DType::F32, &[5]);
                g.argsort(x, descending)
            };
            check(build, &[("x", floats(&[f32::NAN, 2., 7., 2., -1.]))], &expected);
        }
    }
}
