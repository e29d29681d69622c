//! Tokens per second of repetitions: mean and deviation.

use std::time::Duration;

/// Tokens per second of each repetition.
#[derive(Default)]
pub struct Speeds(Vec<f64>);

impl Speeds {
    /// Adds a repetition; one of no tokens was none.
    pub fn push(&mut self, n_tokens: usize, time: Duration) {
        if n_tokens > 0 {
            self.0.push(n_tokens as f64 / time.as_secs_f64().max(1e-9));
        }
    }

    /// Their mean; `None` if there are none.
    pub fn mean(&self) -> Option<f64> {
        (!self.0.is_empty()).then(|| self.0.iter().sum::<f64>() / self.0.len() as f64)
    }

    /// Standard deviation of the sample; 0 for a single one.
    pub fn sd(&self) -> Option<f64> {
        let mean = self.mean()?;
        let squares: f64 = self.0.iter().map(|x| (x - mean).powi(2)).sum();
        Some((squares / (self.0.len() as f64 - 1.0).max(1.0)).sqrt())
    }

    /// `12.34 ± 0.56`.
    pub fn shown(&self) -> String {
        format!("{:.2} ± {:.2}", self.mean().unwrap_or(0.0), self.sd().unwrap_or(0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_and_deviation_are_those_of_the_sample() {
        assert_eq!(Speeds(vec![1.0, 2.0, 3.0]).shown(), "2.00 ± 1.00");
        assert_eq!(Speeds(vec![5.0]).shown(), "5.00 ± 0.00");
        assert_eq!(Speeds::default().mean(), None);
    }
}
