//! Numbers that ggml's CPU gave for the functions of which there is more than one reading.

use super::super::tests::{check, compute, floats};
use super::*;

/// The op on these numbers.
fn is(op: impl Fn(&mut Graph, Tensor) -> Tensor, x: &[f32], expected: &[f32]) {
    let build = |g: &mut Graph| {
        let x = g.input("x", DType::F32, &[x.len() as u64]);
        op(g, x)
    };
    check(build, &[("x", floats(x))], expected);
}

#[test]
fn halves_are_rounded_away_from_zero() {
    let x = [-2.5, -1.5, -0.5, -0.1, 0.5, 1.5, 2.5];
    is(Graph::round, &x, &[-3., -2., -1., 0., 1., 2., 3.]);
    is(Graph::trunc, &x, &[-2., -1., 0., 0., 0., 1., 2.]);
    is(Graph::floor, &x, &[-3., -2., -1., -1., 0., 1., 2.]);
    is(Graph::ceil, &x, &[-2., -1., 0., 0., 1., 2., 3.]);
}

#[test]
fn zero_has_no_sign_and_is_no_step() {
    is(Graph::sgn, &[-0.1, -0.0, 0.0, 7.0], &[-1., 0., 0., 1.]);
    is(Graph::step, &[-0.1, -0.0, 0.0, 7.0], &[0., 0., 0., 1.]);
}

#[test]
fn gelu_has_three_forms() {
    // ggml reads the first and the last from tables of 11 bits; here are their formulas.
    let x = [-4.0, -0.5, 1.5];
    is(Graph::gelu, &x, &[-7.024_595e-5, -0.154_286, 1.399_571_5]);
    is(Graph::gelu_erf, &x, &[-0.000_126_719, -0.154_268_77, 1.399_789_2]);
    is(Graph::gelu_quick, &x, &[-0.004_414_724, -0.149_611_56, 1.391_662_2]);
}

#[test]
fn gelu_of_minus_infinity_is_its_limit() {
    is(Graph::gelu, &[f32::NEG_INFINITY, -1e19], &[0., 0.]);
}

#[test]
fn large_magnitudes_stay_finite_and_nan_stays_nan() {
    is(Graph::gelu_quick, &[-1e5, 1e5, 1e30], &[0., 1e5, 1e30]);
    let build = |g: &mut Graph| {
        let x = g.input("x", DType::F32, &[1]);
        g.leaky_relu(x, 0.1)
    };
    assert!(compute(build, &[("x", floats(&[f32::NAN]))])[0].is_nan());
}

#[test]
fn hard_forms_are_straight_between_minus_3_and_3() {
    let x = [-4.0, -2.5, 0.0, 0.1, 2.5, 4.0];
    is(Graph::hardsigmoid, &x, &[0., 0.083_333_34, 0.5, 0.516_666_65, 0.916_666_7, 1.]);
    is(Graph::hardswish, &x, &[0., -0.208_333_34, 0., 0.051_666_666, 2.291_666_7, 4.]);
}

#[test]
fn exponentials_and_their_relatives() {
    let x = [-4.0, -0.1, 0.0, 1.5];
    is(Graph::elu, &x, &[-0.981_684_4, -0.095_162_585, 0., 1.5]);
    is(Graph::expm1, &x, &[-0.981_684_4, -0.095_162_57, 0., 3.481_689]);
    is(Graph::softplus, &[-4.0, -0.5, 1.5, 25.0], &[0.018_149_96, 0.474_077, 1.701_413_3, 25.]);
}

#[test]
fn xielu_takes_the_numbers_of_a_file() {
    let x = [-30.0, -0.5, -0.1, 0.0, 0.1, 25.0];
    let expected = [33.461_918, -0.071_976_535, -0.041_916_19, -1.671_1e-6, 0.061_711_006, 744.437_87];
    is(|g, x| g.xielu(x, 0.8, 0.8, 0.5, -1e-6), &x, &expected);
    let expected = [5.740_986_4, -0.017_890_237, -0.098_455_57, -0.118_596_904, 0.26, 15_627.5];
    is(|g, x| g.xielu(x, -1.5, 25.0, 0.1, -0.5), &x, &expected);
}

#[test]
fn the_lower_bound_wins() {
    is(|g, x| g.clamp(x, -0.3, 2.0), &[-30., -0.1, 0.5, 4.], &[-0.3, -0.1, 0.5, 2.]);
    is(|g, x| g.clamp(x, 0.5, -0.5), &[-30., 0., 4.], &[0.5; 3]);
    is(|g, x| g.clamp(x, -0.3, 2.0), &[f32::NAN], &[2.0]);
}

#[test]
fn a_leak_is_a_part_of_negative_numbers() {
    is(|g, x| g.leaky_relu(x, 0.1), &[-30., 0., 4.], &[-3., 0., 4.]);
}

#[test]
fn the_result_has_the_dtype_of_the_source() {
    for dtype in NUMBERS {
        let mut g = Graph::new();
        let x = g.input("x", dtype, &[3]);
        let y = g.exp(x);
        assert_eq!(g.def(y).dtype, dtype);
    }
}

#[test]
fn integers_are_refused() {
    let mut g = Graph::new();
    let x = g.input("x", DType::I32, &[3]);
    g.exp(x);
    assert_eq!(g.finish().unwrap_err().to_string(), "exp of `x`: x is I32, expected F32, F16 or BF16");
}
