//! Keeps the tokens whose probability is at least p times the largest: logit ≥ max + ln p.

use super::candidate::{Candidate, max_logit};

/// Keeps those at least `p` times as probable as the most probable; 0 keeps all.
pub fn apply(candidates: &mut Vec<Candidate>, p: f32) {
    if p > 0.0 {
        let least = max_logit(candidates) + p.ln();
        candidates.retain(|c| c.logit >= least);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::candidate::read;

    #[test]
    fn the_improbable_go_and_the_order_stays() {
        check(0.0, &[0, 1, 2, 3]);
        check(0.29, &[0, 1, 2]);
        check(0.45, &[0, 2]);
        check(1.0, &[2]);
    }

    fn check(p: f32, kept: &[u32]) {
        let mut c = Vec::new();
        read(&[0.25f32, 0.15, 0.5, 0.1].map(f32::ln), &mut c).unwrap();
        apply(&mut c, p);
        assert_eq!(c.iter().map(|c| c.id).collect::<Vec<_>>(), kept, "p = {p}");
    }
}
