//! y = f(x), elementwise: silu, gelu in three forms, relu, tanh, sigmoid.

use super::check::{self, Answer};
use super::{Args, Worker};
use crate::simd::{LANES, Simd, dispatch, math};
use llmrt_plugin::{DType, NodeView, Op};

pub fn supports(node: &NodeView<'_>) -> Answer {
    let x = check::floats(node, 0)?;
    check::result(node, DType::F32, x.ne())
}

pub fn compute(w: &mut Worker<'_>, a: &Args) {
    let x = a.arg(0);
    for (row, part) in w.pieces(&a.dst) {
        let at = a.dst.unravel(row);
        // SAFETY: pieces are disjoint.
        let y = unsafe { a.dst.part_mut(at, part.clone()) };
        apply(w.isa, a.op, &x.row(at)[part], y);
    }
}

dispatch! {
    fn apply(op: Op, x: &[f32], y: &mut [f32]) = apply_with;
}

#[inline(always)]
fn apply_with<S: Simd>(s: S, op: Op, x: &[f32], y: &mut [f32]) {
    match op {
        Op::Silu => map(s, x, y, math::silu),
        Op::Gelu => map(s, x, y, math::gelu),
        Op::GeluErf => map(s, x, y, math::gelu_erf),
        Op::GeluQuick => map(s, x, y, math::gelu_quick),
        Op::Relu => map(s, x, y, math::relu),
        Op::Tanh => map(s, x, y, math::tanh),
        _ => map(s, x, y, math::sigmoid),
    }
}

#[inline(always)]
fn map<S: Simd>(s: S, x: &[f32], y: &mut [f32], f: impl Fn(S, S::F) -> S::F) {
    let (vectors, rest) = x.as_chunks::<LANES>();
    let (to, to_rest) = y.as_chunks_mut::<LANES>();
    for (x, y) in vectors.iter().zip(to) {
        s.store(f(s, s.load(x)), y);
    }
    if !rest.is_empty() {
        s.store_part(f(s, s.load_part(rest)), to_rest);
    }
}
