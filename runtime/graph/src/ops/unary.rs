//! y = f(x), elementwise, f one of the table below; computed in f32. Semantics: ggml's unary ops.
//!
//! NaN gives NaN, unless a function's line differs. `gelu` of -inf is its limit 0, as in ggml; `silu`, `gelu_erf`
//! and `gelu_quick` of -inf are NaN. Other than in ggml: `leaky_relu` of NaN is NaN (ggml: 0), and `gelu_quick` is
//! computed in f32, so it stays finite where the F16 tables of ggml overflow.
//!
//! Result: dtype (F32, F16 or BF16) and shape of x.

use super::activations::{
    elu, gelu, gelu_erf, gelu_quick, hardsigmoid, hardswish, relu, sigmoid, silu, softplus,
};
use super::operand::{Layout, NUMBERS, prepared, rounding};
use super::{Inferred, Rules, case::Case, check, value::Value};
use crate::graph::Graph;
use crate::tensor::{Shape, Tensor, TensorDef};
use llmrt_abi::op::{ClampParams, LeakyReluParams, XieluParams};
use llmrt_abi::{DType, Op};
use std::fmt::Debug;

/// Builder methods and rules of ops without params: `rules of op: builder(domain of the cases) = f`.
macro_rules! unary {
    ($($(#[$doc:meta])* $rules:ident of $op:ident: $name:ident($domain:ident) = $f:expr;)*) => {
        impl Graph {
            $($(#[$doc])* pub fn $name(&mut self, x: Tensor) -> Tensor {
                self.push(Op::$op, &[Some(x)], &[])
            })*
        }
        $(pub(super) const $rules: Rules = Rules {
            infer: same_shape,
            reference: |s, _| map(s, $f),
            decompose: None,
            cases: || cases(Domain::$domain, Graph::$name),
        };)*
    };
}

unary! {
    /// x · sigmoid(x).
    SILU of Silu: silu(Any) = silu;
    /// gelu in its tanh form.
    GELU of Gelu: gelu(Any) = gelu;
    /// gelu with the error function.
    GELU_ERF of GeluErf: gelu_erf(Any) = gelu_erf;
    /// x · sigmoid(1.702 x).
    GELU_QUICK of GeluQuick: gelu_quick(Any) = gelu_quick;
    /// max(x, 0).
    RELU of Relu: relu(Any) = relu;
    /// Hyperbolic tangent.
    TANH of Tanh: tanh(Any) = f32::tanh;
    /// 1 / (1 + exp(-x)).
    SIGMOID of Sigmoid: sigmoid(Any) = sigmoid;
    /// |x|.
    ABS of Abs: abs(Any) = f32::abs;
    /// -1, 0 or 1 by the sign of x.
    SGN of Sgn: sgn(Any) = |x| (x > 0.0) as i32 as f32 - (x < 0.0) as i32 as f32;
    /// -x.
    NEG of Neg: neg(Any) = |x| -x;
    /// 1 where x > 0, else 0.
    STEP of Step: step(Any) = |x| (x > 0.0) as i32 as f32;
    /// x where x > 0, else exp(x) - 1.
    ELU of Elu: elu(Any) = elu;
    /// x · min(1, max(0, (x + 3) / 6)).
    HARDSWISH of HardSwish: hardswish(Any) = hardswish;
    /// min(1, max(0, (x + 3) / 6)).
    HARDSIGMOID of HardSigmoid: hardsigmoid(Any) = hardsigmoid;
    /// exp(x).
    EXP of Exp: exp(Moderate) = f32::exp;
    /// exp(x) - 1.
    EXPM1 of Expm1: expm1(Moderate) = f32::exp_m1;
    /// log(1 + exp(x)); x itself above 20.
    SOFTPLUS of Softplus: softplus(Any) = softplus;
    /// Largest integer not above x.
    FLOOR of Floor: floor(Any) = f32::floor;
    /// Smallest integer not below x.
    CEIL of Ceil: ceil(Any) = f32::ceil;
    /// Nearest integer, halves away from 0.
    ROUND of Round: round(Any) = f32::round;
    /// x without its fraction.
    TRUNC of Trunc: trunc(Any) = f32::trunc;
    /// x².
    SQR of Sqr: sqr(Any) = |x| x * x;
    /// Square root; NaN below 0.
    SQRT of Sqrt: sqrt(Positive) = f32::sqrt;
    /// Natural logarithm; NaN below 0.
    LOG of Log: log(Positive) = f32::ln;
    /// Sine.
    SIN of Sin: sin(Any) = f32::sin;
    /// Cosine.
    COS of Cos: cos(Any) = f32::cos;
}

impl Graph {
    /// x where x > 0, else slope · x.
    pub fn leaky_relu(&mut self, x: Tensor, slope: f32) -> Tensor {
        self.push(Op::LeakyRelu, &[Some(x)], &LeakyReluParams { slope }.to_bytes())
    }

    /// max(min(x, max), min).
    pub fn clamp(&mut self, x: Tensor, min: f32, max: f32) -> Tensor {
        self.push(Op::Clamp, &[Some(x)], &ClampParams { min, max }.to_bytes())
    }

    /// xIELU of the parameters as a file holds them: α_p x² + βx where x > 0, else α_n (exp(min(x, eps)) - 1 - x) + βx
    /// with α_p = softplus(`alpha_p`), α_n = `beta` + softplus(`alpha_n`). The op's params hold α_p and α_n.
    pub fn xielu(&mut self, x: Tensor, alpha_n: f32, alpha_p: f32, beta: f32, eps: f32) -> Tensor {
        let p = XieluParams { alpha_n: beta + softplus(alpha_n), alpha_p: softplus(alpha_p), beta, eps };
        self.push(Op::Xielu, &[Some(x)], &p.to_bytes())
    }
}

pub(super) const LEAKY_RELU: Rules = Rules {
    infer: |s, p| check::params(LeakyReluParams::from_bytes(p)).and_then(|_| same_shape(s, p)),
    reference: |s, p| {
        let slope = LeakyReluParams::from_bytes(p).unwrap_or_default().slope;
        map(s, |x| if x > 0.0 { x } else { slope * x })
    },
    decompose: None,
    cases: || {
        let slopes = param_cases([0.0, 1.0, -0.5], Graph::leaky_relu);
        cases(Domain::Any, |g, x| g.leaky_relu(x, 0.1)).into_iter().chain(slopes).collect()
    },
};

pub(super) const CLAMP: Rules = Rules {
    infer: |s, p| check::params(ClampParams::from_bytes(p)).and_then(|_| same_shape(s, p)),
    reference: |s, p| {
        let p = ClampParams::from_bytes(p).unwrap_or_default();
        map(s, |x| x.min(p.max).max(p.min))
    },
    decompose: None,
    cases: || {
        // The last: the lower bound wins over a higher one.
        let bounds = [(0.0, 6.0), (f32::NEG_INFINITY, 0.3), (-0.3, f32::INFINITY), (0.5, -0.5)];
        let bounds = param_cases(bounds, |g, x, (min, max)| g.clamp(x, min, max));
        cases(Domain::Any, |g, x| g.clamp(x, -0.5, 0.25)).into_iter().chain(bounds).collect()
    },
};

pub(super) const XIELU: Rules = Rules {
    infer: |s, p| check::params(XieluParams::from_bytes(p)).and_then(|_| same_shape(s, p)),
    reference: |s, p| {
        let p = XieluParams::from_bytes(p).unwrap_or_default();
        map(s, |x| match x > 0.0 {
            true => p.alpha_p * x * x + p.beta * x,
            false => (x.min(p.eps).exp_m1() - x) * p.alpha_n + p.beta * x,
        })
    },
    decompose: None,
    cases: || {
        let files = [(4.0, 20.0, 0.5, 0.0), (-1.5, 25.0, 0.1, -0.5), (0.0, 0.0, 0.0, 0.0)];
        let files = param_cases(files, |g, x, (n, p, beta, eps)| g.xielu(x, n, p, beta, eps));
        cases(Domain::Any, |g, x| g.xielu(x, 0.8, 0.8, 0.5, -1e-6)).into_iter().chain(files).collect()
    },
};

fn same_shape(src: &[Option<&TensorDef>], _params: &[u8]) -> Inferred {
    let x = check::numbers(src, 0, "x")?;
    Ok((x.dtype, x.ne))
}

fn map(src: &[Option<&Value>], f: impl Fn(f32) -> f32) -> Value {
    let x = check::arg(src, 0);
    Value::f32(x.ne, x.floats().iter().map(|&x| f(x)).collect())
}

/// Where an op has finite results.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Domain {
    Any,
    /// Not far from 0.
    Moderate,
    /// Above 0.
    Positive,
}

impl Domain {
    /// What makes numbers of the domain of -1..1: factor and addend. The first is enough for most cases.
    fn ranges(self) -> &'static [(f32, f32)] {
        match self {
            Domain::Any => &[(1.0, 0.0), (8.0, 0.0), (60.0, 0.0)],
            Domain::Moderate => &[(1.0, 0.0), (8.0, 0.0)],
            Domain::Positive => &[(0.5, 0.51), (0.01, 0.0101), (100.0, 101.0)],
        }
    }
}

fn cases(domain: Domain, op: impl Fn(&mut Graph, Tensor) -> Tensor) -> Vec<Case> {
    let ranges = domain.ranges();
    let shapes = [
        [128, 2, 2, 2],
        [5, 7, 11, 3],
        [1, 1, 1, 1],
        [1, 9, 1, 1],
        [1025, 5, 1, 1],
        [0, 4, 1, 1],
        [6, 0, 2, 1],
    ];
    let mut cases = vec![];
    for dtype in NUMBERS {
        for ne in shapes {
            cases.push(case("", dtype, ne, Layout::Dense, ranges[0], &op));
        }
        for layout in Layout::STRIDED {
            cases.push(case("", dtype, [33, 5, 3, 2], layout, ranges[0], &op));
        }
        for range in &ranges[1..] {
            let name = format!("up to {}, ", range.0 + range.1);
            cases.push(case(&name, dtype, [67, 4, 1, 1], Layout::Dense, *range, &op));
        }
        if domain != Domain::Positive {
            let of_halves = |g: &mut Graph, x| {
                let x = g.floor(x);
                let x = g.scale(x, 0.5);
                op(g, x)
            };
            let name = "zeros, integers and halves, ";
            cases.push(case(name, dtype, [64, 2, 1, 1], Layout::Dense, (8.0, 0.0), of_halves));
        }
    }
    cases
}

/// A case of values in -1..1 times the first number of `range` plus the second.
fn case(
    what: &str,
    dtype: DType,
    ne: Shape,
    layout: Layout,
    range: (f32, f32),
    op: impl Fn(&mut Graph, Tensor) -> Tensor,
) -> Case {
    Case::new(format!("{what}{dtype} {ne:?}, {layout:?}"), |g, _| {
        let in_range =
            |g: &mut Graph, x| if range == (1.0, 0.0) { x } else { g.scale_bias(x, range.0, range.1) };
        let x = prepared(g, "x", dtype, ne, layout, in_range);
        op(g, x);
    })
    .nmse(rounding(dtype))
}

/// F32 cases, one per choice of params.
fn param_cases<P: Debug + Copy, const N: usize>(
    all: [P; N],
    op: impl Fn(&mut Graph, Tensor, P) -> Tensor,
) -> impl Iterator<Item = Case> {
    all.into_iter().map(move |p| {
        let name = format!("params {p:?}, ");
        case(&name, DType::F32, [33, 5, 3, 2], Layout::Dense, (8.0, 0.0), |g, x| op(g, x, p))
    })
}

#[cfg(test)]
#[path = "unary_tests.rs"]
mod tests;
