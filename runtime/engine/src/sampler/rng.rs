//! xoshiro256++ (Blackman and Vigna 2019), seeded by splitmix64: four words of state, the same numbers on every
//! machine and for ever, so a seed keeps its text.

/// A stream of random numbers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rng {
    s: [u64; 4],
}

impl Rng {
    /// The stream of `seed`; every seed is good.
    pub fn new(seed: u64) -> Self {
        let mut state = seed;
        Self { s: std::array::from_fn(|_| splitmix64(&mut state)) }
    }

    /// 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        let s = &mut self.s;
        let bits = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        bits
    }

    /// A number in [0, 1), a multiple of 2⁻⁵³.
    pub fn next_f64(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }
}

fn splitmix64(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers were computed from the two formulas with arbitrary-precision integers.
    #[test]
    fn the_stream_of_a_seed_is_fixed() {
        check(0, [0x53175d61490b23df, 0x61da6f3dc380d507, 0x5c0fdf91ec9a7bfc, 0x02eebf8c3bbe5e1a]);
        check(42, [0xd0764d4f4476689f, 0x519e4174576f3791, 0xfbe07cfb0c24ed8c, 0xb37d9f600cd835b8]);
        check(u64::MAX, [0x56ccf8ce948e27b2, 0xe68588432e5a5b90, 0xe3e9b5a48119ca8b, 0x460f19495532ae73]);
    }

    #[test]
    fn fractions_fill_zero_to_one() {
        let mut rng = Rng::new(7);
        let drawn: Vec<_> = (0..10_000).map(|_| rng.next_f64()).collect();
        assert!(drawn.iter().all(|x| (0.0..1.0).contains(x)));
        assert!(drawn.iter().any(|x| *x < 0.001) && drawn.iter().any(|x| *x > 0.999));
        assert!((drawn.iter().sum::<f64>() / 10_000.0 - 0.5).abs() < 0.01);
    }

    fn check(seed: u64, expected: [u64; 4]) {
        let mut rng = Rng::new(seed);
        assert_eq!(std::array::from_fn(|_| rng.next_u64()), expected, "seed {seed}");
    }
}
