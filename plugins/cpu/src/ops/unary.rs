//! y = f(x), elementwise, f one of the ops of one operand; computed in f32.

use super::check::{self, Answer};
use super::{Args, Output, Worker, elementwise};
use crate::simd::{LANES, Simd, dispatch, math};
use llmrt_plugin::abi::op::{ClampParams, LeakyReluParams, XieluParams};
use llmrt_plugin::{NodeView, Op};

pub fn supports(node: &NodeView<'_>) -> Answer {
    let params = node.params_bytes();
    match node.op() {
        Some(Op::LeakyRelu) => check::params(LeakyReluParams::from_bytes(params)).map(|_| ())?,
        Some(Op::Clamp) => check::params(ClampParams::from_bytes(params)).map(|_| ())?,
        Some(Op::Xielu) => check::params(XieluParams::from_bytes(params)).map(|_| ())?,
        _ => {}
    }
    let x = check::numbers(node, 0)?;
    check::result(node, x.dtype().ok_or(llmrt_plugin::Reason::Type)?, x.ne())
}

pub fn compute(w: &mut Worker<'_>, a: &Args, out: Output<'_>) {
    let params = match a.op {
        Op::LeakyRelu => [a.params(LeakyReluParams::from_bytes).slope, 0.0, 0.0, 0.0],
        Op::Clamp => {
            let p = a.params(ClampParams::from_bytes);
            [p.min, p.max, 0.0, 0.0]
        }
        Op::Xielu => {
            let p = a.params(XieluParams::from_bytes);
            [p.alpha_n, p.alpha_p, p.beta, p.eps]
        }
        _ => [0.0; 4],
    };
    elementwise::map(w, a, out, |isa, x, y| apply(isa, a.op, params, x, y));
}

dispatch! {
    fn apply(op: Op, params: [f32; 4], x: &[f32], y: &mut [f32]) = apply_with;
}

#[inline(always)]
fn apply_with<S: Simd>(s: S, op: Op, params: [f32; 4], x: &[f32], y: &mut [f32]) {
    // Macros: a function passed as an argument would not be sure to be inlined.
    /// A function of vectors.
    macro_rules! map {
        ($f:path $(, $param:expr)*) => {{
            let (vectors, rest) = x.as_chunks::<LANES>();
            let (to, to_rest) = y.as_chunks_mut::<LANES>();
            for (x, y) in vectors.iter().zip(to) {
                s.store($f(s, s.load(x) $(, $param)*), y);
            }
            if !rest.is_empty() {
                s.store_part($f(s, s.load_part(rest) $(, $param)*), to_rest);
            }
        }};
    }
    /// A function of numbers: simple enough for the compiler to make vectors of, or rare.
    macro_rules! each {
        (|$x:ident| $f:expr) => {
            for (y, &$x) in y.iter_mut().zip(x) {
                *y = $f;
            }
        };
    }
    let [p0, p1, ..] = params;
    match op {
        Op::Silu => map!(math::silu),
        Op::Gelu => map!(math::gelu),
        Op::GeluErf => map!(math::gelu_erf),
        Op::GeluQuick => map!(math::gelu_quick),
        Op::Relu => map!(math::relu),
        Op::Tanh => map!(math::tanh),
        Op::Sigmoid => map!(math::sigmoid),
        Op::Exp => map!(math::exp),
        Op::Expm1 => map!(math::expm1),
        Op::Elu => map!(math::elu),
        Op::Xielu => map!(math::xielu, params),
        Op::Abs => each!(|x| x.abs()),
        Op::Sgn => each!(|x| (x > 0.0) as i32 as f32 - (x < 0.0) as i32 as f32),
        Op::Neg => each!(|x| -x),
        Op::Step => each!(|x| (x > 0.0) as i32 as f32),
        Op::HardSwish => each!(|x| x * hardsigmoid(x)),
        Op::HardSigmoid => each!(|x| hardsigmoid(x)),
        Op::Softplus => each!(|x| if x > 20.0 { x } else { x.exp().ln_1p() }),
        Op::Floor => each!(|x| x.floor()),
        Op::Ceil => each!(|x| x.ceil()),
        Op::Round => each!(|x| x.round()),
        Op::Trunc => each!(|x| x.trunc()),
        Op::Sqr => each!(|x| x * x),
        Op::Sqrt => each!(|x| x.sqrt()),
        Op::Log => each!(|x| x.ln()),
        Op::Sin => each!(|x| x.sin()),
        Op::Cos => each!(|x| x.cos()),
        Op::LeakyRelu => each!(|x| if x > 0.0 { x } else { p0 * x }),
        _ => each!(|x| x.min(p1).max(p0)),
    }
}

/// min(1, max(0, (x + 3) / 6)); NaN becomes 0.
#[inline(always)]
#[allow(clippy::manual_clamp)] // which would keep NaN
fn hardsigmoid(x: f32) -> f32 {
    ((x + 3.0) / 6.0).max(0.0).min(1.0)
}
