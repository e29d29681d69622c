//! y = indices of the k largest values of each row, largest first; equal values keep the lower index first.
//! NaN counts as less than every number. Semantics: ggml's top_k, which leaves the order of the k indices open.
//!
//! Result: I32 [k, ne1, ne2, ne3] of x F32 [n, ne1, ne2, ne3].

use super::operand::{Layout, operand};
use super::{Inferred, Rules, case::Case, check, value::Value};
use crate::graph::Graph;
use crate::tensor::{Shape, Tensor, TensorDef};
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
    let ne = check::any_floats(src, 0, "x")?.ne;
    if k > ne[0] || ne[0] > i32::MAX as u64 {
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
    for (ne, k) in [
        ([8, 5, 1, 1], 2),
        ([128, 3, 1, 1], 8),
        ([128, 3, 2, 2], 1),
        ([7, 1, 1, 1], 7),
        ([1, 2, 1, 1], 1),
        ([1, 9, 3, 1], 1),
        ([60, 5, 1, 1], 6),
        ([64, 70, 1, 1], 6),
        ([1000, 2, 1, 1], 40),
        ([1025, 5, 1, 1], 1024),
        ([5000, 1, 1, 1], 1),
        ([5000, 2, 1, 1], 5000),
        ([8, 0, 1, 1], 2),
        ([8, 2, 0, 1], 8),
        ([8, 3, 1, 1], 0),
        ([0, 3, 1, 1], 0),
    ] {
        cases.push(case(ne, Layout::Dense, k));
    }
    for layout in Layout::STRIDED {
        for k in [1, 3, 32, 33] {
            cases.push(case([33, 5, 3, 2], layout, k));
        }
    }
    for scale in [0.0, 3.0, 20.0] {
        for k in [1, 6, 31, 32] {
            cases.push(Case::new(
                format!("equal values keep the lower index first, {k} of {scale}"),
                |g, _| {
                    let x = g.input("x", DType::F32, &[32, 5]);
                    let x = g.scale(x, scale);
                    let x = g.round(x);
                    g.top_k(x, k);
                },
            ));
        }
    }
    cases
}

fn case(ne: Shape, layout: Layout, k: u32) -> Case {
    Case::new(format!("{k} largest of {ne:?}, {layout:?}"), |g, _| {
        let x = operand(g, "x", DType::F32, ne, layout);
        g.top_k(x, k);
    })
}
