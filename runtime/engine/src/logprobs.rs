//! Natural logarithms of the probabilities that a model gave, before any sampler changed them.

use crate::error::Result;
use crate::sampler::check_logits;
use crate::sequence::TokenId;

/// A token with its log-probability.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TokenLogprob {
    /// The token.
    pub token: TokenId,
    /// ln p.
    pub logprob: f64,
}

/// The logits of one position, with what turns them into log-probabilities.
pub struct LogSoftmax<'a> {
    logits: &'a [f32],
    /// Largest logit.
    max: f32,
    /// ln Σ exp(logit − max).
    log_sum: f64,
}

impl<'a> LogSoftmax<'a> {
    /// Of a whole row; refuses logits that are no numbers.
    pub fn new(logits: &'a [f32]) -> Result<LogSoftmax<'a>> {
        check_logits(logits)?;
        let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f64 = logits.iter().map(|&logit| f64::from(logit - max).exp()).sum();
        Ok(LogSoftmax { logits, max, log_sum: sum.ln() })
    }

    /// The log-probability of a token.
    pub fn of(&self, token: TokenId) -> TokenLogprob {
        let logprob = f64::from(self.logits[token as usize] - self.max) - self.log_sum;
        TokenLogprob { token, logprob }
    }

    /// The `n` likeliest tokens, the likeliest first; of equal ones, the smaller id first.
    pub fn top(&self, n: usize) -> Vec<TokenLogprob> {
        let logits = self.logits;
        let mut ids: Vec<TokenId> = (0..logits.len() as TokenId).collect();
        let by_logit =
            |&a: &TokenId, &b: &TokenId| logits[b as usize].total_cmp(&logits[a as usize]).then(a.cmp(&b));
        let n = n.min(ids.len());
        if n < ids.len() {
            ids.select_nth_unstable_by(n, by_logit);
            ids.truncate(n);
        }
        ids.sort_unstable_by(by_logit);
        ids.into_iter().map(|id| self.of(id)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_add_up_to_one_and_are_ordered() {
        let row = LogSoftmax::new(&[1.0, 3.0, 3.0, -2.0]).unwrap();
        let top = row.top(9);
        assert_eq!(top.iter().map(|t| t.token).collect::<Vec<_>>(), [1, 2, 0, 3]);
        assert!((top.iter().map(|t| t.logprob.exp()).sum::<f64>() - 1.0).abs() < 1e-12);
        assert_eq!(row.top(1), top[..1]);
    }
}
