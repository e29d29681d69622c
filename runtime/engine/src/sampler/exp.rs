//! Exponentials of a whole vocabulary, in a form that compilers turn into vector instructions.

use super::candidate::Candidate;

/// Candidates whose exponentials are added at once.
const LANES: usize = 8;

/// e^x for x up to 0, within 2 units in the last place of [`f32::exp`]; below -87 it is 0. Range reduction to ±ln 2 / 2 and a
/// polynomial, as in Cephes (S. L. Moshier, expf.c).
#[inline]
pub fn exp(x: f32) -> f32 {
    // Adding it rounds to an integer, which is then in the low bits.
    const ROUND: f32 = 12_582_912.0;
    // ln 2 in two parts, the first with few enough bits for exact products.
    const LN_2: [f32; 2] = [0.693_359_4, -2.121_944_4e-4];
    let shifted = x.max(-100.0) * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = x.max(-100.0) - n * LN_2[0] - n * LN_2[1];
    let mut y = 1.987_569_1e-4;
    for c in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 0.166_666_65, 0.5] {
        y = y * r + c;
    }
    let y = y * r * r + r + 1.0;
    let exponent = (shifted.to_bits().wrapping_sub(ROUND.to_bits()) as i32 + 127) << 23;
    if x < -87.0 { 0.0 } else { y * f32::from_bits(exponent as u32) }
}

/// Σ weight(logit).
pub fn sum(candidates: &[Candidate], weight: impl Fn(f32) -> f32) -> f64 {
    let (chunks, rest) = candidates.as_chunks::<LANES>();
    let mut sums = [0.0; LANES];
    for chunk in chunks {
        let weights = chunk.map(|c| weight(c.logit));
        sums.iter_mut().zip(weights).for_each(|(sum, weight)| *sum += f64::from(weight));
    }
    sums.into_iter().sum::<f64>() + rest.iter().map(|c| f64::from(weight(c.logit))).sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_within_two_units_in_the_last_place_of_the_library_s() {
        for i in 0..870_000 {
            let x = i as f32 * -1e-4;
            let (found, expected) = (exp(x), x.exp());
            let units = found.to_bits().abs_diff(expected.to_bits());
            assert!(units <= 2, "exp({x}) is {found}: expected {expected}");
        }
        assert_eq!([exp(0.0), exp(-88.0), exp(f32::NEG_INFINITY)], [1.0, 0.0, 0.0]);
    }

    #[test]
    fn a_sum_has_all_terms() {
        for n in 0..40 {
            let candidates: Vec<_> = (0..n).map(|id| Candidate { id, logit: id as f32 }).collect();
            assert_eq!(sum(&candidates, |logit| logit + 1.0), f64::from(n * (n + 1) / 2));
        }
    }
}
