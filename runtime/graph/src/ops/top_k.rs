//! y = indices of the k largest values of each row, largest first; equal values keep the lower index first.
//! NaN counts as less than every number.

use super::{Inferred, Rules, case::Case, check, value::Value};
use crate::graph::Graph;
use crate::tensor::{Tensor, TensorDef};
use llmrt_abi::{DType, Op, op::TopKParams};
use std::cmp::Ordering;

impl Graph {
    /// I32 indices [k, ...] of the `k` largest values of each row of `x` [n, ...].
    pub fn top_k(&mut self, x: Tensor, k: u32) -> Tensor {
        self.push(Op::TopK, &[Some(x)], &TopKParams { k }.to_bytes())
    }
}

pub(super) const RULES: Rules = Rules { infer, reference, decompose: None, cases };

fn infer(src: &[Option<&TensorDef>], params: &[u8]) -> Inferred {
    let k = check::params(TopKParams::from_bytes(params))?.k as u64;
    let ne = check::floats(src, 0, "x")?.ne;
    if k == 0 || k > ne[0] || ne[0] > i32::MAX as u64 {
        return Err(format!("{k} largest of rows of {}", ne[0]));
    }
    Ok((DType::I32, [k, ne[1], ne[2], ne[3]]))
}

fn reference(src: &[Option<&Value>], params: &[u8]) -> Value {
    let k = TopKParams::from_bytes(params).unwrap_or_default().k as usize;
    let x = check::arg(src, 0);
    let mut y = Vec::with_capacity(k * x.n_rows());
    for i in 0..x.n_rows() {
        let row = x.row(i);
        let mut ids: Vec<i32> = (0..row.len() as i32).collect();
        ids.sort_by(|&a, &b| largest_first(row[a as usize], row[b as usize]));
        y.extend(ids.into_iter().take(k));
    }
    Value::i32([k as u64, x.ne[1], x.ne[2], x.ne[3]], y)
}

/// Order of a stable sort.
fn largest_first(a: f32, b: f32) -> Ordering {
    b.partial_cmp(&a).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

fn cases() -> Vec<Case> {
    let mut cases = vec![];
    for (n, rows, k) in [(8, 5, 2), (128, 3, 8), (7, 1, 7), (1, 2, 1), (1000, 2, 40)] {
        cases.push(Case::new(format!("{k} largest of {n}"), |g, _| {
            let x = g.input("x", DType::F32, &[n, rows]);
            g.top_k(x, k);
        }));
    }
    cases.push(Case::new("equal values keep the lower index first", |g, _| {
        let x = g.input("x", DType::F32, &[32, 2]);
        let x = g.scale(x, 0.0);
        g.top_k(x, 6);
    }));
    cases.push(Case::new("strided rows", |g, _| {
        let x = g.input("x", DType::F32, &[30, 4]);
        let x = g.slice(x, 0, 7, 11);
        g.top_k(x, 3);
    }));
    cases
}
