//! Tokens that may come next, and the orders they are put into.

use super::exp::{exp, sum};
use crate::error::{Error, Result};
use crate::sequence::TokenId;
use std::cmp::Ordering;

/// A token that may come next. Its logit is a number or -inf.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Candidate {
    /// The token.
    pub id: TokenId,
    /// Its logit.
    pub logit: f32,
}

/// Every token of the vocabulary with its logit, in the order of ids. NaN and +inf are refused, -0 becomes 0: so logits
/// that are equal are so in every order.
pub fn read(logits: &[f32], candidates: &mut Vec<Candidate>) -> Result<()> {
    check(logits)?;
    candidates.clear();
    candidates.extend(logits.iter().zip(0..).map(|(logit, id)| Candidate { id, logit: logit + 0.0 }));
    Ok(())
}

/// The largest alone, as they come. NaN and +inf are refused, -0 becomes 0.
pub fn read_largest(largest: &[Candidate], candidates: &mut Vec<Candidate>) -> Result<()> {
    check_largest(largest)?;
    candidates.clear();
    candidates.extend(largest.iter().map(|c| Candidate { logit: c.logit + 0.0, ..*c }));
    Ok(())
}

/// Refuses an empty row and logits from which no probability follows.
pub fn check(logits: &[f32]) -> Result<()> {
    match logits.iter().position(is_nonsense) {
        Some(at) => Err(Error::BadLogit { token: at as TokenId, found: logits[at] }),
        None if logits.is_empty() => Err(Error::NoLogits),
        None => Ok(()),
    }
}

/// Refuses a logit from which no probability follows.
pub fn check_logit(token: TokenId, logit: f32) -> Result<()> {
    if is_nonsense(&logit) { Err(Error::BadLogit { token, found: logit }) } else { Ok(()) }
}

/// The candidate of a token, among all of the vocabulary in the order of ids, or among few in any order.
pub fn of_token(candidates: &mut [Candidate], token: TokenId) -> Option<&mut Candidate> {
    let at = match candidates.get(token as usize) {
        Some(candidate) if candidate.id == token => token as usize,
        _ => candidates.iter().position(|candidate| candidate.id == token)?,
    };
    candidates.get_mut(at)
}

/// The same of the largest alone.
pub fn check_largest(largest: &[Candidate]) -> Result<()> {
    match largest.iter().find(|c| is_nonsense(&c.logit)) {
        Some(c) => Err(Error::BadLogit { token: c.id, found: c.logit }),
        None if largest.is_empty() => Err(Error::NoLogits),
        None => Ok(()),
    }
}

fn is_nonsense(logit: &f32) -> bool {
    logit.is_nan() || *logit == f32::INFINITY
}

/// The token with the largest logit; of equal ones, the first.
pub fn largest(candidates: &[Candidate]) -> TokenId {
    candidates.iter().min_by(|a, b| by_logit(a, b)).map_or(0, |c| c.id)
}

/// Largest logit first; of equal ones, the smaller id first. So no order depends on how it was sorted, and it is that of the
/// op top_k.
pub fn by_logit(a: &Candidate, b: &Candidate) -> Ordering {
    b.logit.total_cmp(&a.logit).then(a.id.cmp(&b.id))
}

/// ln Σ exp(logit): a token's log-probability is its logit less this.
pub fn log_sum_exp(candidates: &[Candidate]) -> f32 {
    let max = max_logit(candidates);
    max + sum(candidates, |logit| exp(logit - max)).ln() as f32
}

/// The largest logit.
pub fn max_logit(candidates: &[Candidate]) -> f32 {
    candidates.iter().fold(f32::NEG_INFINITY, |max, c| max.max(c.logit))
}

/// Sorts by `order` and keeps the front, up to and with the candidate at which `enough` is true.
///
/// Sorts in growing pieces, so a large vocabulary costs little more than reading it when the front is short.
pub fn keep_front(
    candidates: &mut Vec<Candidate>,
    order: impl Fn(&Candidate, &Candidate) -> Ordering,
    mut enough: impl FnMut(&Candidate) -> bool,
) {
    let (mut start, mut piece) = (0, 128);
    while start < candidates.len() {
        let rest = &mut candidates[start..];
        let n = sort_front(rest, piece, &order);
        if let Some(at) = rest[..n].iter().position(&mut enough) {
            candidates.truncate(start + at + 1);
            return;
        }
        start += n;
        piece *= 4;
    }
}

/// Brings the first `n` by `order` to the front, sorted, and returns how many there are.
pub fn sort_front(
    candidates: &mut [Candidate],
    n: usize,
    order: impl Fn(&Candidate, &Candidate) -> Ordering,
) -> usize {
    let n = n.min(candidates.len());
    if 0 < n && n < candidates.len() {
        candidates.select_nth_unstable_by(n - 1, &order);
    }
    candidates[..n].sort_unstable_by(&order);
    n
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn nonsense_from_the_model_is_an_error_and_not_a_token() {
        assert_eq!(check(&[]), Err(Error::NoLogits));
        let message = |logits| check(logits).unwrap_err().to_string();
        assert!(message(&[0.0, f32::NAN]).starts_with("the logit of token 1 is NaN:"));
        assert!(message(&[f32::INFINITY, 0.0]).starts_with("the logit of token 0 is inf:"));
        assert_eq!(check(&[f32::NEG_INFINITY, 0.0]), Ok(()));
    }

    #[test]
    fn of_equal_logits_the_first_is_the_largest() {
        for logits in [[1.0, 3.0, 3.0, 2.0], [-1.0, -0.0, 0.0, -2.0]] {
            let mut c = Vec::new();
            read(&logits, &mut c).unwrap();
            assert_eq!(largest(&c), 1);
        }
    }

    #[test]
    fn the_sum_of_large_logits_does_not_overflow() {
        let mut c = Vec::new();
        read(&[1000.0, 1000.0], &mut c).unwrap();
        assert!((log_sum_exp(&c) - (1000.0 + 2f32.ln())).abs() < 1e-3);
    }

    proptest! {
        #[test]
        fn the_kept_front_is_that_of_a_full_sort(
            logits in prop::collection::vec(-4i8..4, 1..2000),
            n_kept in 1..2500usize,
        ) {
            let logits: Vec<_> = logits.into_iter().map(f32::from).collect();
            let mut kept = Vec::new();
            read(&logits, &mut kept).unwrap();
            let mut sorted = kept.clone();
            sorted.sort_by(by_logit);
            sorted.truncate(n_kept);

            let mut n_read = 0;
            keep_front(&mut kept, by_logit, |_| { n_read += 1; n_read == n_kept });
            prop_assert_eq!(kept, sorted);
        }
    }
}
