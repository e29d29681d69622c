//! Scales for which rounding loses least: candidates around the one that fits the extremes, each with the scale that
//! least squares give for its whole numbers. Plain squared error, no weights.
//!
//! Sums are taken in 16 lanes and numbers rounded with ties to even, as vectors do it: fast twins give the same bytes.

use super::legacy::largest_magnitude;

/// Blocks whose numbers are all smaller than this are zeros.
pub(super) const TINY: f32 = 1e-15;

/// The scale with which q · scale comes nearest to x, q whole numbers from -max_q to max_q - 1.
pub(super) fn signed_scale(x: &[f32], max_q: f32) -> f32 {
    let peak = largest_magnitude(x);
    if peak.abs() < TINY {
        return 0.0;
    }
    let mut best = Best::default();
    for step in -9..=9 {
        let inverse = (max_q + 0.1 * step as f32) / -peak;
        let [xq, qq] = sums(x, |x| {
            let q = nearest(x * inverse).clamp(-max_q, max_q - 1.0);
            [x * q, q * q]
        });
        best.offer(xq * xq / qq, (xq / qq, 0.0));
    }
    best.fit.0
}

/// Scale and minimum with which q · scale - minimum comes nearest to x, q whole numbers from 0 to max_q. The minimum is
/// not below 0.
pub(super) fn scale_and_minimum(x: &[f32], max_q: f32) -> (f32, f32) {
    let (low, high) = x.iter().fold((0f32, f32::MIN), |(low, high), &v| (low.min(v), high.max(v)));
    if high - low < TINY {
        return (0.0, -low);
    }
    let n = x.len() as f32;
    let [sum_x] = sums(x, |x| [x]);
    let mut best = Best::default();
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
        // The squared error is Σ x² less this.
        best.offer(scale * xq + offset * sum_x, (scale, -offset));
    }
    best.fit
}

/// The best of the fits that were offered.
#[derive(Default)]
pub(super) struct Best {
    gain: f32,
    pub(super) fit: (f32, f32),
}

impl Best {
    /// Keeps a fit that explains more of Σ x² than those before it.
    pub(super) fn offer(&mut self, gain: f32, fit: (f32, f32)) {
        if gain > self.gain {
            *self = Best { gain, fit };
        }
    }
}

/// Sums of `terms` over x, whose length is a multiple of 16.
pub(super) fn sums<const N: usize>(x: &[f32], terms: impl Fn(f32) -> [f32; N]) -> [f32; N] {
    let mut lanes = [[0.0; 16]; N];
    for x in x.chunks_exact(16) {
        for l in 0..16 {
            let terms = terms(x[l]);
            (0..N).for_each(|k| lanes[k][l] += terms[k]);
        }
    }
    lanes.map(total)
}

/// Upper half onto lower half, until one is left.
fn total(mut lanes: [f32; 16]) -> f32 {
    for n in [8, 4, 2, 1] {
        (0..n).for_each(|l| lanes[l] += lanes[l + n]);
    }
    lanes[0]
}

/// The nearest whole number, ties to even, of numbers below 2²²: past 1.5 · 2²³ floats are whole.
fn nearest(v: f32) -> f32 {
    const WHOLE: f32 = 12_582_912.0;
    v + WHOLE - WHOLE
}
