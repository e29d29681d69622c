//! y = f(x), elementwise: silu, gelu in three forms, relu, tanh, sigmoid.

use super::{Inferred, Rules, case::Case, check, value::Value};
use crate::graph::Graph;
use crate::tensor::{Tensor, TensorDef};
use llmrt_abi::{DType, Op};

impl Graph {
    /// x · sigmoid(x).
    pub fn silu(&mut self, x: Tensor) -> Tensor {
        self.push(Op::Silu, &[Some(x)], &[])
    }

    /// gelu in its tanh form.
    pub fn gelu(&mut self, x: Tensor) -> Tensor {
        self.push(Op::Gelu, &[Some(x)], &[])
    }

    /// gelu with the error function.
    pub fn gelu_erf(&mut self, x: Tensor) -> Tensor {
        self.push(Op::GeluErf, &[Some(x)], &[])
    }

    /// x · sigmoid(1.702 x).
    pub fn gelu_quick(&mut self, x: Tensor) -> Tensor {
        self.push(Op::GeluQuick, &[Some(x)], &[])
    }

    /// max(x, 0).
    pub fn relu(&mut self, x: Tensor) -> Tensor {
        self.push(Op::Relu, &[Some(x)], &[])
    }

    /// Hyperbolic tangent.
    pub fn tanh(&mut self, x: Tensor) -> Tensor {
        self.push(Op::Tanh, &[Some(x)], &[])
    }

    /// 1 / (1 + exp(-x)).
    pub fn sigmoid(&mut self, x: Tensor) -> Tensor {
        self.push(Op::Sigmoid, &[Some(x)], &[])
    }
}

pub(super) const SILU: Rules = rules(|s, _| map(s, silu), || cases(Graph::silu));
pub(super) const GELU: Rules = rules(|s, _| map(s, gelu), || cases(Graph::gelu));
pub(super) const GELU_ERF: Rules = rules(|s, _| map(s, gelu_erf), || cases(Graph::gelu_erf));
pub(super) const GELU_QUICK: Rules = rules(|s, _| map(s, gelu_quick), || cases(Graph::gelu_quick));
pub(super) const RELU: Rules = rules(|s, _| map(s, relu), || cases(Graph::relu));
pub(super) const TANH: Rules = rules(|s, _| map(s, f32::tanh), || cases(Graph::tanh));
pub(super) const SIGMOID: Rules = rules(|s, _| map(s, sigmoid), || cases(Graph::sigmoid));
pub(super) const ABS: Rules = super::MISSING;
pub(super) const SGN: Rules = super::MISSING;
pub(super) const NEG: Rules = super::MISSING;
pub(super) const STEP: Rules = super::MISSING;
pub(super) const ELU: Rules = super::MISSING;
pub(super) const HARDSWISH: Rules = super::MISSING;
pub(super) const HARDSIGMOID: Rules = super::MISSING;
pub(super) const EXP: Rules = super::MISSING;
pub(super) const EXPM1: Rules = super::MISSING;
pub(super) const SOFTPLUS: Rules = super::MISSING;
pub(super) const XIELU: Rules = super::MISSING;
pub(super) const FLOOR: Rules = super::MISSING;
pub(super) const CEIL: Rules = super::MISSING;
pub(super) const ROUND: Rules = super::MISSING;
pub(super) const TRUNC: Rules = super::MISSING;
pub(super) const SQR: Rules = super::MISSING;
pub(super) const SQRT: Rules = super::MISSING;
pub(super) const LOG: Rules = super::MISSING;
pub(super) const SIN: Rules = super::MISSING;
pub(super) const COS: Rules = super::MISSING;
pub(super) const LEAKY_RELU: Rules = super::MISSING;
pub(super) const CLAMP: Rules = super::MISSING;

const fn rules(reference: fn(&[Option<&Value>], &[u8]) -> Value, cases: fn() -> Vec<Case>) -> Rules {
    Rules { infer, reference, decompose: None, cases }
}

fn infer(src: &[Option<&TensorDef>], _params: &[u8]) -> Inferred {
    Ok((DType::F32, check::floats(src, 0, "x")?.ne))
}

fn map(src: &[Option<&Value>], f: fn(f32) -> f32) -> Value {
    let x = check::arg(src, 0);
    Value::f32(x.ne, x.floats().iter().map(|&x| f(x)).collect())
}

/// x · sigmoid(x).
pub(super) fn silu(x: f32) -> f32 {
    x / (1.0 + (-x).exp())
}

/// ½ x (1 + tanh(√(2/π) (x + 0.044715 x³))).
pub(super) fn gelu(x: f32) -> f32 {
    const SQRT_2_OVER_PI: f32 = 0.797_884_6;
    0.5 * x * (1.0 + (SQRT_2_OVER_PI * x * (1.0 + 0.044715 * x * x)).tanh())
}

/// ½ x (1 + erf(x / √2)).
pub(super) fn gelu_erf(x: f32) -> f32 {
    (0.5 * x as f64 * (1.0 + erf(x as f64 / std::f64::consts::SQRT_2))) as f32
}

/// x · sigmoid(1.702 x).
pub(super) fn gelu_quick(x: f32) -> f32 {
    x / (1.0 + (-1.702 * x).exp())
}

/// max(x, 0).
pub(super) fn relu(x: f32) -> f32 {
    x.max(0.0)
}

/// 1 / (1 + exp(-x)).
pub(super) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

/// The error function: its Maclaurin series 2/√π Σ (-1)ⁿ x²ⁿ⁺¹ / (n! (2n+1)) near 0, and further out
/// 1 - erfc by the continued fraction e^(-x²)/√π · 1/(x + ½/(x + 1/(x + 3/2/(x + …)))). Within 1e-13 of the truth.
fn erf(x: f64) -> f64 {
    let a = x.abs();
    if a > 6.0 {
        return x.signum();
    }
    if a < 2.5 {
        let (mut term, mut sum) = (a, a);
        for n in 1..60 {
            term *= -a * a / n as f64;
            sum += term / (2 * n + 1) as f64;
        }
        return x.signum() * sum * std::f64::consts::FRAC_2_SQRT_PI;
    }
    let tail = (1..80).rev().fold(a, |tail, n| a + n as f64 / 2.0 / tail);
    x.signum() * (1.0 - (-a * a).exp() * std::f64::consts::FRAC_2_SQRT_PI / 2.0 / tail)
}

fn cases(op: fn(&mut Graph, Tensor) -> Tensor) -> Vec<Case> {
    let mut cases = vec![];
    for ne in [[128, 2, 2, 2], [5, 7, 11, 3], [1, 1, 1, 1], [1000, 1, 1, 1]] {
        cases.push(Case::new(format!("elements of {ne:?}"), |g, _| {
            let x = g.input("x", DType::F32, &ne);
            op(g, x);
        }));
    }
    cases.push(Case::new("strided rows of large values", |g, _| {
        let x = g.input("x", DType::F32, &[64, 3]);
        let x = g.scale(x, 20.0);
        let x = g.slice(x, 0, 5, 33);
        op(g, x);
    }));
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_function_has_its_tabulated_values() {
        for (x, y) in [
            (0.0, 0.0),
            (0.5, 0.520_499_877_813_046_5),
            (1.0, 0.842_700_792_949_714_9),
            (2.0, 0.995_322_265_018_952_7),
            (2.4999, 0.999_592_9),
            (2.5, 0.999_593_047_982_555),
            (3.0, 0.999_977_909_503_001_4),
            (-1.0, -0.842_700_792_949_714_9),
            (9.0, 1.0),
        ] {
            let limit = if x == 2.4999 { 3e-7 } else { 1e-13 };
            assert!((erf(x) - y).abs() < limit, "erf({x}) = {}", erf(x));
        }
    }

    #[test]
    fn activations_keep_their_limits() {
        for f in [silu, gelu, gelu_erf, gelu_quick] {
            assert_eq!(f(0.0), 0.0);
            assert_eq!(f(100.0), 100.0);
            assert!(f(-100.0).abs() < 1e-30);
        }
        assert_eq!((relu(-2.0), relu(2.0)), (0.0, 2.0));
        assert_eq!((sigmoid(0.0), sigmoid(200.0), sigmoid(-200.0)), (0.5, 1.0, 0.0));
        assert!((gelu(1.0) - 0.841_192).abs() < 1e-6);
        assert!((gelu_erf(1.0) - 0.841_344_8).abs() < 1e-7);
    }
}
