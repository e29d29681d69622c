//! The candidates that decide: of a whole row the largest alone, and the tokens whose logits rules change, are much fewer than
//! the vocabulary.

use super::candidate::{Candidate, check_logit, read, sort_front};
use super::params::SamplingParams;
use crate::error::{Error, Result};
use crate::sequence::TokenId;

/// Tokens that rules name from which on the whole vocabulary is read.
const MAX_NAMED: usize = 512;

/// Logits that are compared at once.
const LANES: usize = 32;

/// The candidates from which the chain picks the same token as from all: those that biases and penalties of `window` name,
/// and as many of the largest others as the cuts keep.
pub fn select(
    logits: &[f32],
    window: &[TokenId],
    p: &SamplingParams,
    candidates: &mut Vec<Candidate>,
) -> Result<()> {
    let Some(k) = p.n_kept() else { return read(logits, candidates) };
    let penalised = if p.penalises() { window } else { &[] };
    let biased = p.logit_bias.iter().map(|(token, _)| *token);
    let in_vocabulary = |token: &TokenId| (*token as usize) < logits.len();
    let mut named: Vec<TokenId> = biased.chain(penalised.iter().copied()).filter(in_vocabulary).collect();
    named.sort_unstable();
    named.dedup();
    let n = k.saturating_add(named.len());
    if named.len() > MAX_NAMED || n >= logits.len() {
        return read(logits, candidates);
    }
    largest(logits, n, candidates)?;
    for token in named {
        if candidates.iter().all(|c| c.id != token) {
            candidates.push(Candidate { id: token, logit: logits[token as usize] + 0.0 });
        }
    }
    Ok(())
}

/// The `n` largest logits, largest first; of equal ones those with the smaller ids first. NaN and +inf are refused, -0 becomes 0.
pub(crate) fn largest(logits: &[f32], n: usize, candidates: &mut Vec<Candidate>) -> Result<()> {
    if logits.is_empty() {
        return Err(Error::NoLogits);
    }
    candidates.clear();
    let n = n.clamp(1, logits.len());
    // Others are passed over that are not larger than the n-th so far: of equal ones the first counts.
    let mut nth: Option<f32> = None;
    for (chunk, first) in logits.chunks(LANES).zip((0..).step_by(LANES)) {
        let least = nth.unwrap_or(f32::NEG_INFINITY);
        // NaN is not below anything.
        let is_passed = chunk.iter().fold(true, |all, &logit| all & (logit <= least));
        if is_passed && nth.is_some() {
            continue;
        }
        for (&logit, id) in chunk.iter().zip(first..) {
            check_logit(id, logit)?;
            if nth.is_none_or(|nth| logit > nth) {
                candidates.push(Candidate { id, logit: logit + 0.0 });
                if candidates.len() == n.saturating_mul(4) {
                    nth = Some(cut(candidates, n));
                }
            }
        }
    }
    cut(candidates, n);
    Ok(())
}

/// Keeps the `n` largest, and returns the last of them.
fn cut(candidates: &mut Vec<Candidate>, n: usize) -> f32 {
    sort_front(candidates, n, super::candidate::by_logit);
    candidates.truncate(n);
    candidates.last().map_or(f32::NEG_INFINITY, |c| c.logit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::candidate::by_logit;
    use proptest::prelude::*;

    #[test]
    fn the_first_logit_that_is_no_number_is_named() {
        for at in [0, 31, 32, 70, 99] {
            for bad in [f32::NAN, f32::INFINITY] {
                let mut logits = [1.0; 100];
                logits[at] = bad;
                let error = largest(&logits, 1, &mut Vec::new()).unwrap_err();
                assert!(matches!(error, Error::BadLogit { token, .. } if token == at as TokenId), "{error}");
            }
        }
        assert_eq!(largest(&[], 1, &mut Vec::new()), Err(Error::NoLogits));
    }

    #[test]
    fn tokens_that_rules_name_are_there_however_small_their_logits() {
        let p = SamplingParams {
            temperature: 0.0,
            repeat_penalty: 1.1,
            logit_bias: vec![(7, 1.0)],
            ..SamplingParams::default()
        };
        let logits: Vec<f32> = (0..100).map(|i| i as f32).collect();
        let mut found = Vec::new();
        select(&logits, &[3, 99, 3, 1000], &p, &mut found).unwrap();
        let mut ids: Vec<_> = found.iter().map(|c| c.id).collect();
        ids.sort_unstable();
        assert_eq!(ids, [3, 7, 96, 97, 98, 99]);
    }

    proptest! {
        #[test]
        fn they_are_the_first_of_a_full_sort(
            logits in prop::collection::vec(prop_oneof![
                (-40i8..40).prop_map(f32::from),
                Just(-0.0f32),
                Just(f32::NEG_INFINITY),
            ], 1..2000),
            n in 1..100usize,
        ) {
            let (mut found, mut sorted) = (Vec::new(), Vec::new());
            largest(&logits, n, &mut found).unwrap();
            read(&logits, &mut sorted).unwrap();
            sorted.sort_by(by_logit);
            sorted.truncate(n);
            found.sort_by(by_logit);
            prop_assert_eq!(found, sorted);
        }
    }
}
