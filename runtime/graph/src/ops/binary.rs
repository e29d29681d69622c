//! y = a ∘ b, elementwise, ∘ one of + − · ÷. b repeats along each dim: element i of a meets element i mod n_b of b.

use super::{Inferred, Rules, case::Case, check, value::Value};
use crate::graph::Graph;
use crate::tensor::{Tensor, TensorDef};
use llmrt_abi::{DType, Op};

impl Graph {
    /// a + b; each dim of `b` divides that of `a`.
    pub fn add(&mut self, a: Tensor, b: Tensor) -> Tensor {
        self.push(Op::Add, &[Some(a), Some(b)], &[])
    }

    /// a - b; each dim of `b` divides that of `a`.
    pub fn sub(&mut self, a: Tensor, b: Tensor) -> Tensor {
        self.push(Op::Sub, &[Some(a), Some(b)], &[])
    }

    /// a · b; each dim of `b` divides that of `a`.
    pub fn mul(&mut self, a: Tensor, b: Tensor) -> Tensor {
        self.push(Op::Mul, &[Some(a), Some(b)], &[])
    }

    /// a / b; each dim of `b` divides that of `a`.
    pub fn div(&mut self, a: Tensor, b: Tensor) -> Tensor {
        self.push(Op::Div, &[Some(a), Some(b)], &[])
    }
}

pub(super) const ADD: Rules = rules(add, || cases(Graph::add));
pub(super) const SUB: Rules = rules(sub, || cases(Graph::sub));
pub(super) const MUL: Rules = rules(mul, || cases(Graph::mul));
pub(super) const DIV: Rules = rules(div, || cases(Graph::div));
pub(super) const POW: Rules = super::MISSING;

const fn rules(reference: fn(&[Option<&Value>], &[u8]) -> Value, cases: fn() -> Vec<Case>) -> Rules {
    Rules { infer, reference, decompose: None, cases }
}

fn infer(src: &[Option<&TensorDef>], _params: &[u8]) -> Inferred {
    let a = check::floats(src, 0, "a")?;
    let b = check::floats(src, 1, "b")?;
    if a.ne.iter().zip(b.ne).any(|(a, b)| a % b != 0) {
        return Err(format!("b {:?} does not broadcast to a {:?}", b.ne, a.ne));
    }
    Ok((DType::F32, a.ne))
}

fn add(src: &[Option<&Value>], _params: &[u8]) -> Value {
    apply(src, |a, b| a + b)
}

fn sub(src: &[Option<&Value>], _params: &[u8]) -> Value {
    apply(src, |a, b| a - b)
}

fn mul(src: &[Option<&Value>], _params: &[u8]) -> Value {
    apply(src, |a, b| a * b)
}

fn div(src: &[Option<&Value>], _params: &[u8]) -> Value {
    apply(src, |a, b| a / b)
}

fn apply(src: &[Option<&Value>], f: impl Fn(f32, f32) -> f32) -> Value {
    let (a, b) = (check::arg(src, 0), check::arg(src, 1));
    let n = b.ne[0] as usize;
    let mut y = Vec::with_capacity(a.floats().len());
    for i3 in 0..a.ne[3] {
        for i2 in 0..a.ne[2] {
            for i1 in 0..a.ne[1] {
                let a_row = a.row(((i3 * a.ne[2] + i2) * a.ne[1] + i1) as usize);
                let b_plane = (i3 % b.ne[3]) * b.ne[2] + i2 % b.ne[2];
                let b_row = b.row((b_plane * b.ne[1] + i1 % b.ne[1]) as usize);
                y.extend(a_row.iter().enumerate().map(|(i, &a)| f(a, b_row[i % n])));
            }
        }
    }
    Value::f32(a.ne, y)
}

fn cases(op: fn(&mut Graph, Tensor, Tensor) -> Tensor) -> Vec<Case> {
    let mut cases = vec![];
    for (a, b) in [
        ([10, 5, 4, 3], [10, 5, 4, 3]),
        ([10, 5, 4, 3], [10, 1, 1, 1]),
        ([10, 5, 4, 3], [1, 5, 4, 3]),
        ([10, 5, 4, 3], [10, 5, 1, 1]),
        ([10, 5, 4, 3], [1, 1, 1, 1]),
        ([12, 6, 4, 2], [3, 2, 2, 1]),
        ([1, 1, 1, 1], [1, 1, 1, 1]),
        ([4096, 3, 1, 1], [4096, 1, 1, 1]),
        ([1, 8, 5, 1], [1, 1, 5, 1]),
    ] {
        cases.push(Case::new(format!("{a:?} and {b:?}"), |g, _| {
            let a = g.input("a", DType::F32, &a);
            let b = g.input("b", DType::F32, &b);
            op(g, a, b);
        }));
    }
    cases.push(Case::new("strided operands", |g, _| {
        let a = g.input("a", DType::F32, &[48, 5]);
        let b = g.input("b", DType::F32, &[16, 7]);
        let a = g.slice(a, 0, 16, 16);
        let b = g.slice(b, 1, 2, 5);
        op(g, a, b);
    }));
    cases.push(Case::new("permuted operands", |g, _| {
        let a = g.input("a", DType::F32, &[6, 2, 5]);
        let b = g.input("b", DType::F32, &[6, 5, 2]);
        let a = g.permute(a, [0, 2, 1, 3]);
        op(g, a, b);
    }));
    cases
}
