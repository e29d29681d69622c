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
    // A macro: a function passed as an argument would not be sure to be inlined.
    macro_rules! map {
        ($f:path) => {{
            let (vectors, rest) = x.as_chunks::<LANES>();
            let (to, to_rest) = y.as_chunks_mut::<LANES>();
            for (x, y) in vectors.iter().zip(to) {
                s.store($f(s, s.load(x)), y);
            }
            if !rest.is_empty() {
                s.store_part($f(s, s.load_part(rest)), to_rest);
            }
        }};
    }
    match op {
        Op::Silu => map!(math::silu),
        Op::Gelu => map!(math::gelu),
        Op::GeluErf => map!(math::gelu_erf),
        Op::GeluQuick => map!(math::gelu_quick),
        Op::Relu => map!(math::relu),
        Op::Tanh => map!(math::tanh),
        _ => map!(math::sigmoid),
    }
}
