//! Scales for which rounding loses least: candidates around the one that fits the extremes, each with the scale that
//! least squares give for its whole numbers.

use super::peak;

/// Blocks whose numbers are all smaller than this are zeros.
pub const TINY: f32 = 1e-15;

/// The scale with which q · scale comes nearest to x, q whole numbers from -max_q to max_q - 1.
#[inline(always)]
pub fn signed_scale(x: &[f32], max_q: f32) -> f32 {
    best_scale(x, |peak, step| (max_q + 0.1 * step) / -peak, |v| nearest(v).clamp(-max_q, max_q - 1.0))
}

/// The scale with which rounded(x / scale) · scale comes nearest to x, from 19 candidates for its inverse.
#[inline(always)]
pub fn best_scale(x: &[f32], candidate: impl Fn(f32, f32) -> f32, rounded: impl Fn(f32) -> f32) -> f32 {
    let peak = peak(x);
    if peak.abs() < TINY {
        return 0.0;
    }
    let (mut gain, mut scale) = (0.0, 0.0);
    for step in -9..=9 {
        let inverse = candidate(peak, step as f32);
        let [xq, qq] = sums(x, |x| {
            let q = rounded(x * inverse);
            [x * q, q * q]
        });
        if xq * xq / qq > gain {
            (gain, scale) = (xq * xq / qq, xq / qq);
        }
    }
    scale
}

/// Scale and minimum with which q · scale - minimum comes nearest to x, q whole numbers from 0 to max_q. The minimum is
/// not below 0.
#[inline(always)]
pub fn scale_and_minimum(x: &[f32], max_q: f32) -> (f32, f32) {
    let (low, high) = x.iter().fold((0f32, f32::MIN), |(low, high), &v| (low.min(v), high.max(v)));
    if high - low < TINY {
        return (0.0, -low);
    }
    let n = x.len() as f32;
    let [sum_x] = sums(x, |x| [x]);
    let (mut gain, mut fit) = (0.0, (0.0, 0.0));
    for step in -10..=10 {
        let inverse = (max_q + 0.1 * step as f32) / (high - low);
        let [sum_q, qq, xq] = sums(x, |x| {
            let q = nearest((x - low) * inverse).clamp(0.0, max_q);
            [q, q * q, x * q]
        });
        let det = n * qq - sum_q * sum_q;
        let mut scale = (n * xq - sum_x * sum_q) / det;
        let mut offset = (qq * sum_x - sum_q * xq) / det;
        // All q equal, or a minimum below 0: the scale alone.
        if det <= 0.0 || offset > 0.0 {
            (scale, offset) = (xq / qq, 0.0);
        }
        if scale * xq + offset * sum_x > gain {
            (gain, fit) = (scale * xq + offset * sum_x, (scale, -offset));
        }
    }
    fit
}

/// Sums of `terms` over x, whose length is a multiple of 16, in 16 lanes.
#[inline(always)]
fn sums<const N: usize>(x: &[f32], terms: impl Fn(f32) -> [f32; N]) -> [f32; N] {
    let mut lanes = [[0.0; 16]; N];
    for x in x.as_chunks::<16>().0 {
        for l in 0..16 {
            let terms = terms(x[l]);
            (0..N).for_each(|k| lanes[k][l] += terms[k]);
        }
    }
    crate::simd::array(|k| total(lanes[k]))
}

/// Upper half onto lower half, until one is left.
#[inline(always)]
fn total(mut lanes: [f32; 16]) -> f32 {
    for n in [8, 4, 2, 1] {
        (0..n).for_each(|l| lanes[l] += lanes[l + n]);
    }
    lanes[0]
}

/// The nearest whole number, ties to even, of numbers below 2²²: past 1.5 · 2²³ floats are whole.
#[inline(always)]
fn nearest(v: f32) -> f32 {
    const WHOLE: f32 = 12_582_912.0;
    v + WHOLE - WHOLE
}
