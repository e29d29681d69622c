//! Keeps the k largest logits.

use super::candidate::{Candidate, by_logit, sort_front};

/// Keeps the `k` largest, largest first; 0 or less keeps all. One pass to find them, then only they are sorted.
pub fn apply(candidates: &mut Vec<Candidate>, k: i32) {
    match usize::try_from(k) {
        Ok(k) if 0 < k && k < candidates.len() => {
            sort_front(candidates, k, by_logit);
            candidates.truncate(k);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::candidate::read;

    #[test]
    fn the_k_largest_stay_largest_first() {
        check(2, &[4, 1]);
        check(1, &[4]);
    }

    #[test]
    fn equal_logits_stay_in_the_order_of_ids() {
        check(4, &[4, 1, 2, 0]);
    }

    #[test]
    fn zero_negative_or_many_keep_all() {
        for k in [0, -1, 5, i32::MAX] {
            check(k, &[0, 1, 2, 3, 4]);
        }
    }

    fn check(k: i32, kept: &[u32]) {
        let mut c = Vec::new();
        read(&[1.0, 3.0, 3.0, 0.5, 9.0], &mut c).unwrap();
        apply(&mut c, k);
        assert_eq!(c.iter().map(|c| c.id).collect::<Vec<_>>(), kept, "k = {k}");
    }
}
