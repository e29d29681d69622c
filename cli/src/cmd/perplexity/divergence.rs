//! How far predictions are from others: divergence, agreement, and means with their errors.

/// ln softmax(logits).
pub fn log_probabilities(logits: &[f32]) -> Vec<f64> {
    let max = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    let sum: f64 = logits.iter().map(|&x| (f64::from(x) - max).exp()).sum();
    logits.iter().map(|&x| f64::from(x) - max - sum.ln()).collect()
}

/// The mean of values that come one by one.
#[derive(Clone, Copy, Default, Debug)]
pub struct Mean {
    n: u64,
    sum: f64,
    squares: f64,
}

impl Mean {
    /// Adds a value.
    pub fn add(&mut self, x: f64) {
        (self.n, self.sum, self.squares) = (self.n + 1, self.sum + x, self.squares + x * x);
    }

    /// How many there were.
    pub fn n(&self) -> u64 {
        self.n
    }

    /// Their mean.
    pub fn mean(&self) -> f64 {
        self.sum / self.n.max(1) as f64
    }

    /// The root of the mean of their squares.
    pub fn rms(&self) -> f64 {
        (self.squares / self.n.max(1) as f64).sqrt()
    }

    /// The standard error of the mean: √((mean of squares - mean²) / (n - 1)).
    pub fn error(&self) -> f64 {
        let variance = self.squares / self.n.max(1) as f64 - self.mean().powi(2);
        (variance.max(0.0) / self.n.saturating_sub(1).max(1) as f64).sqrt()
    }
}

/// Predictions beside those of a base.
#[derive(Default)]
pub struct Comparison {
    divergences: Vec<f64>,
    /// 1 where both think the same token likeliest, else 0.
    pub same_top: Mean,
    /// Probability of the right token less the base's.
    pub dp: Mean,
    /// Negative logarithms of the base's probability of each right token.
    pub base_loss: Mean,
}

/// Divergences in order.
pub struct Kld {
    /// Mean.
    pub mean: f64,
    /// Standard error of the mean.
    pub error: f64,
    /// Half are less.
    pub median: f64,
    /// 99 % are less.
    pub of_99: f64,
    /// The most.
    pub max: f64,
}

impl Comparison {
    /// Adds a prediction, both as logarithms of probabilities: Σ base · (ln base - ln p).
    pub fn add(&mut self, log_p: &[f64], log_base: &[f64], target: usize) {
        let kld = log_base.iter().zip(log_p).map(|(base, p)| base.exp() * (base - p)).sum::<f64>();
        self.divergences.push(kld);
        self.same_top.add(f64::from(u8::from(top(log_p) == top(log_base))));
        self.dp.add(log_p[target].exp() - log_base[target].exp());
        self.base_loss.add(-log_base[target]);
    }

    /// The divergences.
    pub fn kld(&self) -> Kld {
        let mut sorted = self.divergences.clone();
        sorted.sort_by(f64::total_cmp);
        let mut mean = Mean::default();
        sorted.iter().for_each(|&x| mean.add(x));
        Kld {
            mean: mean.mean(),
            error: mean.error(),
            median: quantile(&sorted, 0.5),
            of_99: quantile(&sorted, 0.99),
            max: sorted.last().copied().unwrap_or(0.0),
        }
    }
}

/// The likeliest; the first of equals.
fn top(log_p: &[f64]) -> usize {
    (0..log_p.len()).fold(0, |best, i| if log_p[i] > log_p[best] { i } else { best })
}

/// Between the two nearest of sorted values, in proportion.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let at = share * sorted.len().saturating_sub(1) as f64;
    let value = |i: usize| sorted.get(i).or(sorted.last()).copied().unwrap_or(0.0);
    let (i, rest) = (at as usize, at.fract());
    value(i) * (1.0 - rest) + value(i + 1) * rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logits_become_logarithms_of_probabilities() {
        let p: Vec<f64> =
            log_probabilities(&[1000.0, 1000.0, 1000.0 + 2f32.ln()]).iter().map(|x| x.exp()).collect();
        for (p, expected) in p.iter().zip([0.25, 0.25, 0.5]) {
            assert!((p - expected).abs() < 1e-4, "{p}");
        }
    }

    #[test]
    fn equal_predictions_do_not_diverge_and_others_do_by_the_formula() {
        let mut c = Comparison::default();
        let (even, skew) = ([0.5f64.ln(); 2], [0.25f64.ln(), 0.75f64.ln()]);
        c.add(&even, &even, 0);
        c.add(&skew, &even, 1);
        let k = c.kld();
        let expected = 0.5 * (2f64.ln() + (2.0f64 / 3.0).ln());
        assert!((k.max - expected).abs() < 1e-12 && k.median == 0.5 * k.max && k.mean == 0.5 * k.max);
        assert!((c.same_top.mean(), c.dp.mean()) == (0.5, 0.125), "{:?} {:?}", c.same_top, c.dp);
    }

    #[test]
    fn quantiles_are_interpolated_between_values() {
        let sorted = [0.0, 1.0, 2.0, 3.0, 4.0];
        assert_eq!((quantile(&sorted, 0.5), quantile(&sorted, 0.99)), (2.0, 0.99 * 4.0));
        assert_eq!(quantile(&[], 0.5), 0.0);
    }

    #[test]
    fn the_error_of_a_mean_shrinks_with_the_root_of_the_number() {
        let mut mean = Mean::default();
        [1.0, 3.0, 1.0, 3.0].iter().for_each(|&x| mean.add(x));
        assert!((mean.mean(), mean.error()) == (2.0, (1.0f64 / 3.0).sqrt()));
    }
}
