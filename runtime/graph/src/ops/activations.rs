//! The activation functions of single numbers, as ggml defines them (its CPU looks some of them up in F16 tables; these
//! are what the tables approximate).

/// x · sigmoid(x).
pub(super) fn silu(x: f32) -> f32 {
    x / (1.0 + (-x).exp())
}

/// ½ x (1 + tanh(√(2/π) (x + 0.044715 x³))); its limit 0 at -inf, as in ggml.
pub(super) fn gelu(x: f32) -> f32 {
    if x == f32::NEG_INFINITY {
        return 0.0;
    }
    let x = x as f64;
    let u = std::f64::consts::FRAC_2_PI.sqrt() * (x + 0.044715 * x * x * x);
    (0.5 * x * (1.0 + u.tanh())) as f32
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

/// x where x > 0, else eˣ - 1.
pub(super) fn elu(x: f32) -> f32 {
    if x > 0.0 { x } else { x.exp_m1() }
}

/// min(1, max(0, (x + 3) / 6)); NaN becomes 0.
#[allow(clippy::manual_clamp)] // which would keep NaN
pub(super) fn hardsigmoid(x: f32) -> f32 {
    ((x + 3.0) / 6.0).max(0.0).min(1.0)
}

/// x · hardsigmoid(x).
pub(super) fn hardswish(x: f32) -> f32 {
    x * hardsigmoid(x)
}

/// log(1 + eˣ); above 20 it is x itself.
pub(super) fn softplus(x: f32) -> f32 {
    if x > 20.0 { x } else { x.exp().ln_1p() }
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
        for f in [silu, gelu, gelu_erf, gelu_quick, hardswish] {
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
