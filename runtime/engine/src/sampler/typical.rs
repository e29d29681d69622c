//! Keeps the tokens whose surprise -ln q is nearest to the expected surprise H = -Σ q ln q, until they have the
//! probability p together (locally typical sampling, Meister et al. 2023).

use super::candidate::{Candidate, keep_front, log_sum_exp};

/// Keeps the most typical, most typical first, until they have the probability `p` together; 1 keeps all.
pub fn apply(candidates: &mut Vec<Candidate>, p: f32) {
    if p >= 1.0 {
        return;
    }
    let log_sum = log_sum_exp(candidates);
    let surprise = |c: &Candidate| log_sum - c.logit;
    let expected = entropy(candidates, surprise);
    let distance = |c: &Candidate| (surprise(c) - expected).abs();

    let mut together = 0.0;
    keep_front(
        candidates,
        |a, b| distance(a).total_cmp(&distance(b)).then(a.id.cmp(&b.id)),
        |c| {
            together += f64::from((-surprise(c)).exp());
            together >= f64::from(p)
        },
    );
}

/// H = Σ q · surprise; an impossible token adds nothing.
fn entropy(candidates: &[Candidate], surprise: impl Fn(&Candidate) -> f32) -> f32 {
    let possible = candidates.iter().map(surprise).filter(|s| s.is_finite());
    possible.map(|s| f64::from((-s).exp() * s)).sum::<f64>() as f32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::candidate::read;

    // q = 0.25 0.15 0.5 0.1 has H = 1.208 and the surprises 1.386 1.897 0.693 2.303,
    // at the distances 0.178 0.689 0.515 1.095.

    #[test]
    fn the_most_typical_need_not_be_the_most_probable() {
        check(0.2, &[0]);
        check(0.7, &[0, 2]);
        check(0.85, &[0, 2, 1]);
    }

    #[test]
    fn one_keeps_all_and_zero_keeps_one() {
        check(1.0, &[0, 1, 2, 3]);
        check(0.0, &[0]);
    }

    #[test]
    fn impossible_tokens_are_the_last_to_stay() {
        let mut c = Vec::new();
        read(&[f32::NEG_INFINITY, 0.0, 0.0], &mut c).unwrap();
        apply(&mut c, 0.9);
        assert_eq!(c.iter().map(|c| c.id).collect::<Vec<_>>(), [1, 2]);
    }

    fn check(p: f32, kept: &[u32]) {
        let mut c = Vec::new();
        read(&[0.25f32, 0.15, 0.5, 0.1].map(f32::ln), &mut c).unwrap();
        apply(&mut c, p);
        assert_eq!(c.iter().map(|c| c.id).collect::<Vec<_>>(), kept, "p = {p}");
    }
}
