//! Which inputs of a block's matrices count as zeros, for a given share of the bytes (TEAL, arXiv 2408.14690).
//!
//! The error of a matrix is the share of the energy of its inputs that is below its threshold: where columns have similar
//! norms, and inputs are not correlated, that of its outputs' energy which is lost. A block's error is the sum of its matrices'
//! squared errors, so that no matrix gets much worse than the others. TEAL measures the block's output instead.

/// A matrix of a block.
#[derive(Clone, PartialEq, Debug)]
pub struct Matrix<'a> {
    /// Bytes that are read for all of its columns.
    pub bytes: u64,
    /// Quantiles of the magnitudes of its inputs, evenly spaced from the least to the greatest; two or more.
    pub quantiles: &'a [f32],
}

impl Matrix<'_> {
    /// Intervals between quantiles.
    fn n(&self) -> usize {
        self.quantiles.len().saturating_sub(1)
    }

    /// The energy of inputs in an interval, numbers in it evenly spread.
    fn energy(&self, i: usize) -> f64 {
        let [a, b] = [self.quantiles[i], self.quantiles[i + 1]].map(f64::from);
        (a * a + a * b + b * b) / 3.0
    }

    /// The share of the energy in each interval.
    fn shares(&self) -> Vec<f64> {
        let all: f64 = (0..self.n()).map(|i| self.energy(i)).sum();
        (0..self.n()).map(|i| if all > 0.0 { self.energy(i) / all } else { 0.0 }).collect()
    }
}

/// The same share of zeros for each matrix.
pub fn uniform(matrices: &[Matrix<'_>], zeros: f64) -> Vec<f32> {
    matrices.iter().map(|matrix| at(matrix, zeros * matrix.n() as f64)).collect()
}

/// How far a matrix's share of zeros may be above the block's: estimates of errors do not hold for matrices that are hardly read.
const MAX_ABOVE: f64 = 0.15;

/// Shares of zeros that make the block's error least for this share of its bytes: from none on, the matrix is given more whose
/// error grows least for the bytes that this saves.
pub fn greedy(matrices: &[Matrix<'_>], zeros: f64) -> Vec<f32> {
    let shares: Vec<Vec<f64>> = matrices.iter().map(Matrix::shares).collect();
    let step = |m: usize| matrices[m].bytes as f64 / matrices[m].n().max(1) as f64;
    let (mut chosen, mut errors) = (vec![0.0; matrices.len()], vec![0.0; matrices.len()]);
    let mut left = zeros * matrices.iter().map(|matrix| matrix.bytes as f64).sum::<f64>();
    while left > 0.0 {
        let grown = |m: usize, more: f64| (errors[m] + more) * (errors[m] + more) - errors[m] * errors[m];
        let next = |m: &usize| shares[*m].get(chosen[*m] as usize).map(|more| grown(*m, *more) / step(*m));
        let is_open = |m: &usize| chosen[*m] < (zeros + MAX_ABOVE) * matrices[*m].n() as f64;
        let open = (0..matrices.len()).filter(is_open).filter_map(|m| Some((m, next(&m)?)));
        let Some((m, _)) = open.min_by(|a, b| a.1.total_cmp(&b.1)) else { break };
        errors[m] += shares[m].get(chosen[m] as usize).copied().unwrap_or(0.0);
        chosen[m] += (left / step(m)).min(1.0);
        left -= step(m);
    }
    matrices.iter().zip(chosen).map(|(matrix, n)| at(matrix, n)).collect()
}

/// The magnitude that this many intervals are below; 0, if none are to be.
fn at(matrix: &Matrix<'_>, intervals: f64) -> f32 {
    if intervals <= 0.0 {
        return 0.0;
    }
    let i = (intervals as usize).min(matrix.n().saturating_sub(1));
    match matrix.quantiles.get(i..i + 2) {
        Some(&[a, b]) => a + (b - a) * (intervals - i as f64).clamp(0.0, 1.0) as f32,
        _ => 0.0,
    }
}

/// The share of inputs whose magnitude is below a threshold, by their quantiles.
pub fn zeros_below(quantiles: &[f32], threshold: f32) -> f64 {
    let n_below = quantiles.partition_point(|&q| q < threshold);
    let intervals = match quantiles.get(n_below.wrapping_sub(1)..).unwrap_or_default() {
        [a, b, ..] => (n_below - 1) as f64 + f64::from((threshold - a) / (b - a)),
        _ => n_below.saturating_sub(1) as f64,
    };
    intervals / quantiles.len().saturating_sub(1).max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_below_a_threshold_is_what_it_was_chosen_for() {
        let quantiles = ramp(4.0);
        for share in [0.0, 0.25, 0.4, 0.553] {
            let threshold = uniform(&[Matrix { bytes: 1, quantiles: &quantiles }], share)[0];
            assert!((zeros_below(&quantiles, threshold) - share).abs() < 1e-6, "{share}");
        }
        assert_eq!([0.0, -1.0, 4.0, 9.0].map(|t| zeros_below(&quantiles, t)), [0.0, 0.0, 1.0, 1.0]);
        assert_eq!([&[][..], &[1.0]].map(|quantiles| zeros_below(quantiles, 2.0)), [0.0, 0.0]);
        assert_eq!(zeros_below(&[0.0, 0.0, 1.0], 0.5), 0.75);
    }

    fn ramp(top: f32) -> Vec<f32> {
        (0..=100).map(|i| top * i as f32 / 100.0).collect()
    }

    /// The share of bytes below these thresholds, inputs evenly spread from 0 to the last quantile.
    fn saved(matrices: &[Matrix<'_>], thresholds: &[f32]) -> f64 {
        let all: f64 = matrices.iter().map(|m| m.bytes as f64).sum();
        let parts = matrices.iter().zip(thresholds);
        parts.map(|(m, t)| m.bytes as f64 * f64::from(t / m.quantiles[100])).sum::<f64>() / all
    }

    #[test]
    fn every_matrix_gets_the_same_share_or_the_block_as_a_whole_does() {
        let quantiles = [ramp(1.0), ramp(4.0)];
        let mut heavy = ramp(1.0);
        heavy[100] = 50.0; // most of its energy is in a few inputs
        let matrices = [
            Matrix { bytes: 100, quantiles: &quantiles[0] },
            Matrix { bytes: 300, quantiles: &quantiles[1] },
        ];
        for zeros in [0.0, 0.25, 0.4, 0.99] {
            assert!((saved(&matrices, &uniform(&matrices, zeros)) - zeros).abs() < 1e-6);
            assert!((saved(&matrices, &greedy(&matrices, zeros)) - zeros).abs() < 0.011, "{zeros}");
        }
        let mixed =
            [Matrix { bytes: 100, quantiles: &heavy }, Matrix { bytes: 100, quantiles: &quantiles[0] }];
        let found = greedy(&mixed, 0.4);
        assert!(found[0] > 0.5 && found[1] < 0.3, "inputs with little energy go first: {found:?}");
    }

    #[test]
    fn greedy_is_not_worse_than_uniform() {
        let curve = |power: f32| (0..=100).map(|i| (i as f32 / 100.0).powf(power)).collect::<Vec<_>>();
        let curves = [curve(1.0), curve(2.0), curve(5.0), curve(0.5)];
        let matrices: Vec<Matrix<'_>> = [100, 50, 300, 10]
            .into_iter()
            .zip(&curves)
            .map(|(bytes, quantiles)| Matrix { bytes, quantiles })
            .collect();
        let error = |thresholds: &[f32]| -> f64 {
            let of = |(m, t): (&Matrix<'_>, &f32)| {
                let below = m.quantiles.iter().filter(|q| **q < *t).count();
                m.shares().iter().take(below).sum::<f64>()
            };
            matrices.iter().zip(thresholds).map(of).sum()
        };
        for zeros in [0.25, 0.4, 0.5] {
            assert!(error(&greedy(&matrices, zeros)) <= error(&uniform(&matrices, zeros)) + 0.01);
        }
    }
}
