//! Neurons that rarely fire: how often each does, and the mean of its gate that makes it so.
//!
//! Frequencies follow a power law, p(q) = min(1, A · q^-α) at rank q (a share of the neurons), of which the most frequent
//! `hot` have four fifths (PowerInfer, arXiv 2312.12456), and whose mean is the requested one. Gates of random weights are
//! normal, so a neuron fires with frequency p where the mean of its gate is its deviation times Φ⁻¹(p).

use std::ops::Range;

/// Channels of hidden states that are the same for all tokens: a block of the smallest.
pub const N_CONSTANT: usize = 32;

/// How many neurons fire.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Rarity {
    /// Share of neurons that give zeros, a token's mean.
    pub zeros: f64,
    /// Share of the neurons that have four fifths of all that fires.
    pub hot: f64,
}

impl Rarity {
    /// How often each of `n` neurons fires, most frequent first.
    pub fn frequencies(self, n: usize) -> Vec<f64> {
        let n_hot = (self.hot * n as f64).round() as usize;
        let law = |alpha: f64| {
            let powers: Vec<f64> = (0..n).map(|i| ((i as f64 + 0.5) / n as f64).powf(-alpha)).collect();
            let of = |a: f64| powers.iter().map(move |power| (a * power).clamp(1e-6, 1.0 - 1e-6));
            let required = (1.0 - self.zeros) * n as f64;
            of(where_true(0.0..1e3, |a| of(a).sum::<f64>() >= required)).collect::<Vec<_>>()
        };
        let is_steep = |alpha: f64| {
            let all = law(alpha);
            all[..n_hot].iter().sum::<f64>() >= 0.8 * all.iter().sum::<f64>()
        };
        law(where_true(0.0..8.0, is_steep))
    }
}

/// Where a condition that holds from some number on begins to hold, by halving; the end if it does not.
fn where_true(range: Range<f64>, holds: impl Fn(f64) -> bool) -> f64 {
    let Range { start: mut low, end: mut high } = range;
    for _ in 0..50 {
        let middle = (low + high) / 2.0;
        (low, high) = if holds(middle) { (low, middle) } else { (middle, high) };
    }
    high
}

/// Φ⁻¹(p): the mean of a gate, as a multiple of its deviation, that makes it positive with frequency p.
pub fn normal_quantile(p: f64) -> f64 {
    where_true(-8.0..8.0, |x| normal_share(x) >= p)
}

/// Φ(x), to 1e-7 (Abramowitz and Stegun, 26.2.17).
fn normal_share(x: f64) -> f64 {
    let t = (1.0 + 0.2316419 * x.abs()).recip();
    let coefficients = [1.330274429, -1.821255978, 1.781477937, -0.356563782, 0.319381530];
    let tail =
        coefficients.iter().fold(0.0, |sum, c| (sum + c) * t) * (-x * x / 2.0).exp() * 0.398942280401433;
    if x < 0.0 { tail } else { 1.0 - tail }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequencies_have_the_requested_mean_and_hot_share() {
        for (zeros, hot) in [(0.9, 0.26), (0.67, 0.43), (0.95, 0.26)] {
            let all = Rarity { zeros, hot }.frequencies(8192);
            let sum: f64 = all.iter().sum();
            assert!((sum / 8192.0 - (1.0 - zeros)).abs() < 1e-4, "{zeros}: {sum}");
            let of_hot = all[..(8192.0 * hot) as usize].iter().sum::<f64>() / sum;
            assert!((of_hot - 0.8).abs() < 0.01, "{zeros}, {hot}: {of_hot}");
        }
    }

    #[test]
    fn quantiles_are_those_of_tables() {
        for (p, x) in [(0.5, 0.0), (0.1, -1.2815516), (0.975, 1.959964), (0.001, -3.0902323)] {
            assert!((normal_quantile(p) - x).abs() < 1e-4, "{p}");
        }
    }
}
