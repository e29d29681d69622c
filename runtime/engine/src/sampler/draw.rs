//! Draws a token with the probability exp(logit / temperature) / Σ exp(logit / temperature).

use super::candidate::{Candidate, max_logit};
use super::exp::{exp, sum};
use super::rng::Rng;
use crate::sequence::TokenId;

/// Candidates whose weights are added before it is known which of them is drawn.
const CHUNK: usize = 1024;

/// One random number, one token. `temperature` is above 0 and `candidates` has a logit above -inf.
pub fn draw(candidates: &[Candidate], temperature: f32, rng: &mut Rng) -> TokenId {
    let max = max_logit(candidates);
    let weight = |logit: f32| exp((logit - max) / temperature); // the largest weighs 1
    let sums: Vec<f64> = candidates.chunks(CHUNK).map(|chunk| sum(chunk, weight)).collect();
    let mut left = rng.next_f64() * sums.iter().sum::<f64>();

    // The chunk that the number falls into; if rounding leaves it after all of them, the last with a weight.
    let mut found = None;
    for (chunk, sum) in candidates.chunks(CHUNK).zip(sums) {
        if sum > 0.0 {
            found = Some((chunk, left));
        }
        if left < sum {
            break;
        }
        left -= sum;
    }
    let (chunk, mut left) = found.unwrap_or((candidates, left));
    let mut last = 0;
    for c in chunk {
        let weight = f64::from(weight(c.logit));
        if weight > 0.0 {
            last = c.id;
        }
        left -= weight;
        if left < 0.0 {
            break;
        }
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::candidate::read;

    #[test]
    fn tokens_are_drawn_as_often_as_their_probability() {
        let share = shares(&[0.25f32, 0.15, 0.6].map(f32::ln), 1.0);
        for (found, expected) in share.iter().zip([0.25, 0.15, 0.6]) {
            assert!((found - expected).abs() < 0.02, "{share:?}");
        }
    }

    #[test]
    fn a_low_temperature_prefers_the_largest_and_a_high_one_levels() {
        let logits = [1.0, 2.0, 3.0];
        assert!(shares(&logits, 0.2)[2] > 0.98);
        assert!(shares(&logits, 50.0)[2] < 0.36);
    }

    #[test]
    fn extreme_temperatures_and_forbidden_tokens_do_no_harm() {
        assert_eq!(shares(&[1.0, 2.0, f32::NEG_INFINITY], f32::MIN_POSITIVE), [0.0, 1.0, 0.0]);
        assert_eq!(shares(&[1.0, f32::NEG_INFINITY, f32::NEG_INFINITY], f32::MAX), [1.0, 0.0, 0.0]);
        assert_eq!(shares(&[f32::MIN, f32::MAX, 0.0], 1.0), [0.0, 1.0, 0.0]);
    }

    fn shares(logits: &[f32; 3], temperature: f32) -> [f64; 3] {
        let mut c = Vec::new();
        read(logits, &mut c).unwrap();
        let mut rng = Rng::new(1);
        let mut counts = [0.0; 3];
        for _ in 0..10_000 {
            counts[draw(&c, temperature, &mut rng) as usize] += 1.0 / 10_000.0;
        }
        counts.map(|n: f64| (n * 10_000.0).round() / 10_000.0)
    }
}
