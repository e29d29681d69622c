//! For a token that occurred n > 0 times: logit ← logit / r if positive, logit · r if not
//! (repetition), then logit ← logit - n · frequency - presence.

use super::candidate::{Candidate, of_token};
use super::params::SamplingParams;
use crate::sequence::TokenId;

/// Penalises repetition of the tokens of `window`, and frequency and presence of those of `counted`. Tokens that are no
/// candidates cannot come next, so nothing is done for them.
pub fn apply(candidates: &mut [Candidate], window: &[TokenId], counted: &[TokenId], p: &SamplingParams) {
    if !p.penalises() {
        return;
    }
    each(
        candidates,
        window,
        |logit, _| {
            if logit > 0.0 { logit / p.repeat_penalty } else { logit * p.repeat_penalty }
        },
    );
    each(candidates, counted, |logit, n| logit - (n as f32 * p.frequency_penalty + p.presence_penalty));
}

/// Replaces the logits of these tokens, of each by its logit and how often it is among them.
fn each(candidates: &mut [Candidate], tokens: &[TokenId], f: impl Fn(f32, usize) -> f32) {
    let mut tokens = tokens.to_vec();
    tokens.sort_unstable();
    for same in tokens.chunk_by(|a, b| a == b) {
        if let Some(candidate) = of_token(candidates, same[0]) {
            candidate.logit = f(candidate.logit, same.len()).min(f32::MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::candidate::read;

    #[test]
    fn repetition_makes_both_signs_less_likely() {
        let p = SamplingParams { repeat_penalty: 2.0, ..Default::default() };
        check([4.0, -4.0, 1.0], &[0, 1], &p, [2.0, -8.0, 1.0]);
    }

    #[test]
    fn repetition_counts_once_however_often_a_token_occurred() {
        let p = SamplingParams { repeat_penalty: 2.0, ..Default::default() };
        check([4.0, 4.0, 4.0], &[0, 0, 0], &p, [2.0, 4.0, 4.0]);
    }

    #[test]
    fn frequency_counts_each_time_and_presence_once() {
        let p = SamplingParams { frequency_penalty: 0.5, presence_penalty: 1.0, ..Default::default() };
        check([4.0, 4.0, 4.0], &[1, 0, 1], &p, [2.5, 2.0, 4.0]);
    }

    #[test]
    fn repetition_comes_before_the_other_two() {
        let p = SamplingParams { repeat_penalty: 2.0, presence_penalty: 1.0, ..Default::default() };
        check([4.0, 0.0, -1.0], &[0, 1, 2], &p, [1.0, -1.0, -3.0]);
    }

    #[test]
    fn frequency_and_presence_count_other_tokens_than_repetition_where_these_are_given() {
        let p = SamplingParams {
            repeat_penalty: 2.0,
            frequency_penalty: 0.5,
            presence_penalty: 1.0,
            ..Default::default()
        };
        let mut c = Vec::new();
        read(&[4.0, 4.0, 4.0], &mut c).unwrap();
        apply(&mut c, &[0, 1, 1], &[1], &p);
        assert_eq!(c.iter().map(|c| c.logit).collect::<Vec<_>>(), [2.0, 0.5, 4.0]);
    }

    #[test]
    fn tokens_outside_the_vocabulary_are_passed_over() {
        let p = SamplingParams { repeat_penalty: 2.0, ..Default::default() };
        check([4.0, 4.0, 4.0], &[7, u32::MAX], &p, [4.0, 4.0, 4.0]);
    }

    #[test]
    fn a_forbidden_token_stays_forbidden_and_nothing_overflows() {
        let p = SamplingParams { repeat_penalty: 0.01, presence_penalty: -100.0, ..Default::default() };
        check([f32::NEG_INFINITY, f32::MAX, 0.0], &[0, 1], &p, [f32::NEG_INFINITY, f32::MAX, 0.0]);
    }

    fn check(logits: [f32; 3], window: &[TokenId], p: &SamplingParams, expected: [f32; 3]) {
        let mut c = Vec::new();
        read(&logits, &mut c).unwrap();
        apply(&mut c, window, window, p);
        assert_eq!(c.iter().map(|c| c.logit).collect::<Vec<_>>(), expected);
    }
}
