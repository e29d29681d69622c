//! exp, tanh, sigmoid and erf of 16 numbers: polynomials, a few units in the last place.

use super::{LANES, Simd};

/// c₀ + x (c₁ + x (c₂ + …)).
#[inline(always)]
fn polynomial<S: Simd, const N: usize>(s: S, x: S::F, coefficients: [f32; N]) -> S::F {
    let mut y = s.splat(coefficients[N - 1]);
    for c in coefficients[..N - 1].iter().rev() {
        y = s.fma(y, x, s.splat(*c));
    }
    y
}

/// eˣ = 2ⁿ eʳ, |r| ≤ ln 2 / 2. Below -87 it is 0, above 88.73 infinite; NaN stays NaN.
#[inline(always)]
pub fn exp<S: Simd>(s: S, x: S::F) -> S::F {
    // Numbers below 2⁻¹²⁶ = e^-87.34 take some machines a hundred cycles, and masked scores would all become such; -87 is a
    // round bound above. Bounds and choice let NaN pass through.
    let least = s.splat(-87.0);
    let bounded = s.max(least, s.min(s.splat(89.0), x));
    let n = s.round(s.mul(bounded, s.splat(std::f32::consts::LOG2_E)));
    let nf = s.float(n);
    // ln 2 in two parts; the first has few bits, so that its product is exact.
    let r = s.fma(nf, s.splat(-0.693_359_4), bounded);
    let r = s.fma(nf, s.splat(2.121_944_4e-4), r);
    let inverse_factorials = [1.0, 1.0, 0.5, 1.0 / 6.0, 1.0 / 24.0, 1.0 / 120.0, 1.0 / 720.0, 1.0 / 5040.0];
    s.above(least, x, s.zero(), s.ldexp(polynomial(s, r, inverse_factorials), n))
}

/// ln(1 + eˣ), above 20 x itself.
#[inline(always)]
pub fn softplus<S: Simd>(s: S, x: S::F) -> S::F {
    let (e, one) = (exp(s, x), s.splat(1.0));
    let u = s.add(one, e);
    // What u lacks of 1 + e, over u, is what its logarithm lacks.
    let lost = s.div(s.sub(e, s.sub(u, one)), u);
    s.above(x, s.splat(20.0), x, s.add(ln_above_1(s, u), lost))
}

/// ln x of x ≥ 1 (not infinite): x = 2ⁿ m, m from √½ to √2; the polynomial's coefficients are those of Cephes.
#[inline(always)]
fn ln_above_1<S: Simd>(s: S, x: S::F) -> S::F {
    let bits = s.bits(x);
    let n = s.shr(s.sub_i(bits, s.splat_i(0x3f35_04f3)), 23);
    let f = s.sub(s.from_bits(s.sub_i(bits, s.shl(n, 23))), s.splat(1.0));
    let n = s.float(n);
    let coefficients = [
        0.333_333_3,
        -0.249_999_94,
        0.200_007_15,
        -0.166_680_58,
        0.142_493_23,
        -0.124_201_41,
        0.116_769_99,
        -0.115_146_1,
        0.070_376_836,
    ];
    let square = s.mul(f, f);
    let y = s.mul(s.mul(square, f), polynomial(s, f, coefficients));
    let y = s.fma(n, s.splat(-2.121_944_4e-4), y);
    let y = s.fma(square, s.splat(-0.5), y);
    s.fma(n, s.splat(0.693_359_4), s.add(f, y))
}

/// 1 / (1 + e⁻ˣ).
#[inline(always)]
pub fn sigmoid<S: Simd>(s: S, x: S::F) -> S::F {
    let one = s.splat(1.0);
    s.div(one, s.add(one, exp(s, s.sub(s.zero(), x))))
}

/// x / (1 + e⁻ˣ).
#[inline(always)]
pub fn silu<S: Simd>(s: S, x: S::F) -> S::F {
    s.div(x, s.add(s.splat(1.0), exp(s, s.sub(s.zero(), x))))
}

/// x / (1 + e^(-1.702 x)).
#[inline(always)]
pub fn gelu_quick<S: Simd>(s: S, x: S::F) -> S::F {
    s.div(x, s.add(s.splat(1.0), exp(s, s.mul(x, s.splat(-1.702)))))
}

/// ½ x (1 + tanh u), u = √(2/π) (x + 0.044715 x³): the same as x / (1 + e^(-2u)), without loss for negative x. At -inf
/// its limit, 0.
#[inline(always)]
pub fn gelu<S: Simd>(s: S, x: S::F) -> S::F {
    let cubic = s.fma(s.mul(x, s.splat(0.044715)), x, s.splat(1.0));
    let minus_2u = s.mul(s.mul(x, s.splat(-2.0 * 0.797_884_6)), cubic);
    let y = s.div(x, s.add(s.splat(1.0), exp(s, minus_2u)));
    s.above(s.splat(f32::MIN), x, s.zero(), y)
}

/// ½ x (1 + erf(x / √2)) = ½ x erfc(-x / √2).
#[inline(always)]
pub fn gelu_erf<S: Simd>(s: S, x: S::F) -> S::F {
    let half = s.mul(s.splat(0.5), x);
    s.mul(half, erfc(s, s.mul(x, s.splat(-std::f32::consts::FRAC_1_SQRT_2))))
}

/// max(x, 0).
#[inline(always)]
pub fn relu<S: Simd>(s: S, x: S::F) -> S::F {
    s.max(x, s.zero())
}

/// eˣ - 1: near 0 by its series, which loses nothing there.
#[inline(always)]
pub fn expm1<S: Simd>(s: S, x: S::F) -> S::F {
    let inverse_factorials =
        [1.0, 0.5, 1.0 / 6.0, 1.0 / 24.0, 1.0 / 120.0, 1.0 / 720.0, 1.0 / 5040.0, 1.0 / 40320.0];
    let near = s.mul(x, polynomial(s, x, inverse_factorials));
    let far = s.sub(exp(s, x), s.splat(1.0));
    s.above(s.splat(0.5), magnitude(s, x), near, far)
}

/// x where x > 0, else eˣ - 1.
#[inline(always)]
pub fn elu<S: Simd>(s: S, x: S::F) -> S::F {
    s.above(x, s.zero(), x, expm1(s, x))
}

/// αₚ x² + βx where x > 0, else αₙ (e^min(x, ε) - 1 - x) + βx; the numbers are αₙ, αₚ, β, ε.
#[inline(always)]
pub fn xielu<S: Simd>(s: S, x: S::F, [alpha_n, alpha_p, beta, eps]: [f32; 4]) -> S::F {
    let straight = s.mul(s.splat(beta), x);
    let positive = s.fma(s.mul(s.splat(alpha_p), x), x, straight);
    let eps = s.splat(eps);
    let bend = s.sub(expm1(s, s.above(x, eps, eps, x)), x);
    let negative = s.fma(bend, s.splat(alpha_n), straight);
    s.above(x, s.zero(), positive, negative)
}

/// Hyperbolic tangent: an odd polynomial near 0 (its minimax coefficients are those of Cephes), 1 - 2/(e²ˣ+1) further out.
#[inline(always)]
pub fn tanh<S: Simd>(s: S, x: S::F) -> S::F {
    let a = magnitude(s, x);
    let x2 = s.mul(x, x);
    let near =
        polynomial(s, x2, [-0.333_332_8, 0.133_314_42, -0.053_739_715, 0.020_639_09, -0.005_704_988_6]);
    let near = s.fma(s.mul(near, x2), x, x);
    let one = s.splat(1.0);
    let far = s.sub(one, s.div(s.splat(2.0), s.add(exp(s, s.add(a, a)), one)));
    s.above(a, s.splat(0.625), with_sign(s, far, x), near)
}

/// 1 - erf(x): near 0 by the odd polynomial of erf, further out e^(-x²)/x times a polynomial in 1/x².
#[inline(always)]
fn erfc<S: Simd>(s: S, x: S::F) -> S::F {
    let one = s.splat(1.0);
    // Past 20 the result is 0 or 2 long since, and x² must not overflow.
    let (a, limit) = (magnitude(s, x), s.splat(20.0));
    let a = s.above(a, limit, limit, a);
    let x = with_sign(s, a, x);
    let x2 = s.mul(x, x);
    let near = polynomial(
        s,
        x2,
        [
            std::f32::consts::FRAC_2_SQRT_PI,
            -0.376_126_26,
            0.112_835_85,
            -0.026_853_814,
            0.005_188_327_6,
            -0.000_801_019_4,
            7.853_862e-5,
        ],
    );
    let near = s.sub(one, s.mul(x, near));
    let q = s.div(one, s.max(a, one));
    let q2 = s.mul(q, q);
    let middle = [
        0.563_825_96,
        -0.274_112_7,
        0.340_488,
        -0.494_451_53,
        0.621_000_46,
        -0.582_473_3,
        0.368_742_47,
        -0.138_703_94,
        0.023_268_2,
    ];
    let far = [
        0.564_189_5,
        -0.282_076_74,
        0.421_846_34,
        -1.015_265_3,
        2.921_019,
        -7.495_518,
        12.977_2,
        -10.477_664,
    ];
    let tail = s.above(a, s.splat(2.0), polynomial(s, q2, far), polynomial(s, q2, middle));
    // x² in two parts, so that e^(-x²) does not suffer from the rounding of x².
    let low = s.fma(x, x, s.sub(s.zero(), x2));
    let gauss = s.mul(exp(s, s.sub(s.zero(), x2)), s.sub(one, low));
    let tail = s.mul(s.mul(gauss, q), tail);
    let outer = s.above(s.zero(), x, s.sub(s.splat(2.0), tail), tail);
    s.above(one, a, near, outer)
}

#[inline(always)]
fn magnitude<S: Simd>(s: S, x: S::F) -> S::F {
    s.from_bits(s.and(s.bits(x), s.splat_i(0x7fff_ffff)))
}

#[inline(always)]
fn with_sign<S: Simd>(s: S, magnitude: S::F, sign: S::F) -> S::F {
    s.from_bits(s.or(s.bits(magnitude), s.and(s.bits(sign), s.splat_i(i32::MIN))))
}

/// softplus of one number, the same bits as a lane of [`softplus`].
#[inline(always)]
pub fn softplus_one<S: Simd>(s: S, x: f32) -> f32 {
    let mut lanes = [0.0; LANES];
    s.store(softplus(s, s.splat(x)), &mut lanes);
    lanes[0]
}

/// exp of one number, the same bits as a lane of [`exp`].
#[inline(always)]
pub fn exp_one<S: Simd>(s: S, x: f32) -> f32 {
    let mut lanes = [0.0; LANES];
    s.store(exp(s, s.splat(x)), &mut lanes);
    lanes[0]
}
