//! Keeps the k largest logits.

use super::candidate::{Candidate, by_logit, sort_front};

/// Keeps the `k` largest, largest first; 0 or less keeps all. What comes after the `k` best so far is passed over, which
/// soon is nearly all; so this costs little more than reading.
pub fn apply(candidates: &mut Vec<Candidate>, k: i32) {
    let Some(k) = usize::try_from(k).ok().filter(|&k| 0 < k && k < candidates.len()) else { return };
    let mut n = 0;
    let mut kth: Option<Candidate> = None;
    for i in 0..candidates.len() {
        let c = candidates[i];
        if kth.is_some_and(|kth| by_logit(&kth, &c).is_lt()) {
            continue;
        }
        candidates[n] = c;
        n += 1;
        if n == k.saturating_mul(4) {
            sort_front(&mut candidates[..n], k, by_logit);
            (n, kth) = (k, Some(candidates[k - 1]));
        }
    }
    sort_front(&mut candidates[..n], k, by_logit);
    candidates.truncate(k);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::candidate::read;
    use proptest::prelude::*;

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

    proptest! {
        #[test]
        fn they_are_the_first_of_a_full_sort(
            logits in prop::collection::vec(-40i8..40, 1..2000),
            k in 1..100i32,
        ) {
            let logits: Vec<_> = logits.into_iter().map(f32::from).collect();
            let mut kept = Vec::new();
            read(&logits, &mut kept).unwrap();
            prop_assume!((k as usize) < kept.len());
            let mut sorted = kept.clone();
            sorted.sort_by(by_logit);
            sorted.truncate(k as usize);
            apply(&mut kept, k);
            prop_assert_eq!(kept, sorted);
        }
    }

    fn check(k: i32, kept: &[u32]) {
        let mut c = Vec::new();
        read(&[1.0, 3.0, 3.0, 0.5, 9.0], &mut c).unwrap();
        apply(&mut c, k);
        assert_eq!(c.iter().map(|c| c.id).collect::<Vec<_>>(), kept, "k = {k}");
    }
}
