//! Keeps the fewest tokens whose probabilities reach p together (nucleus sampling, Holtzman et al. 2020).

use super::candidate::{Candidate, by_logit, keep_front, log_sum_exp};

/// What rounding may add to a sum of logarithms, and much more.
const MARGIN: f32 = 0.5;

/// Keeps the most probable, most probable first, until they have the probability `p` together; 1 keeps all.
pub fn apply(candidates: &mut Vec<Candidate>, p: f32) {
    if p >= 1.0 {
        return;
    }
    let log_sum = log_sum_exp(candidates);
    // All that are less probable than this together lack 1 - p at least: none of them stays.
    let least = log_sum + ((1.0 - p) / candidates.len() as f32).ln() - MARGIN;
    candidates.retain(|c| c.logit >= least);
    let mut together = 0.0;
    keep_front(candidates, by_logit, |c| {
        together += f64::from((c.logit - log_sum).exp());
        together >= f64::from(p)
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::candidate::read;

    #[test]
    fn the_token_that_reaches_p_is_the_last_to_stay() {
        check(0.3, &[2]);
        check(0.6, &[2, 0]);
        check(0.9, &[2, 0, 1]);
    }

    #[test]
    fn zero_keeps_the_most_probable() {
        check(0.0, &[2]);
    }

    #[test]
    fn one_keeps_all() {
        check(1.0, &[0, 1, 2, 3]);
    }

    #[test]
    fn a_flat_large_vocabulary_keeps_its_share() {
        let mut c = Vec::new();
        read(&vec![0.0; 100_000], &mut c).unwrap();
        apply(&mut c, 0.25);
        assert!((24_990..=25_010).contains(&c.len()), "{} of 100000 kept", c.len());
        assert!(c.is_sorted_by(|a, b| a.id < b.id), "equal logits stay in the order of ids");
    }

    fn check(p: f32, kept: &[u32]) {
        let mut c = Vec::new();
        read(&[0.25f32, 0.15, 0.5, 0.1].map(f32::ln), &mut c).unwrap();
        apply(&mut c, p);
        assert_eq!(c.iter().map(|c| c.id).collect::<Vec<_>>(), kept, "p = {p}");
    }
}
