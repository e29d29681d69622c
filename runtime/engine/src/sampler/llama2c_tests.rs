//! The stream of the generator and the picks that follow from it.

use super::*;

/// The numbers were computed from the formula with arbitrary-precision integers.
#[test]
fn the_stream_of_a_seed_is_fixed() {
    stream(1, [0x47e4ce4b, 0xabcfa6a8, 0xb9d10d8f, 0x4db418a0, 0x0e6199b0]);
    stream(7, [0xd1fbaf7f, 0xeda46c77, 0x16df9d6a, 0x1b8d7895, 0x5fe1948d]);
    stream(42, [0x56ce4ab7, 0xc841eb53, 0xca466be0, 0xf1acc733, 0xc3af4dd7]);
    stream(u64::MAX, [0xf92cc9e5, 0x8ff484d8, 0x346c95f3, 0xc556cc9c, 0x6c2d653f]);
}

#[test]
fn a_fraction_is_the_upper_24_bits() {
    let mut rng = XorShift64Star::new(42);
    let found: [f32; 3] = std::array::from_fn(|_| rng.next_f32());
    assert_eq!(found, [5_688_906.0 / 16_777_216.0, 13_124_075.0 / 16_777_216.0, 13_256_299.0 / 16_777_216.0]);
}

// Coins of seed 42: 0.339 0.782 0.790 0.944 0.764. Sums of the probabilities below: 0.1 0.6 0.9 1.
const PROBS: [f32; 4] = [0.1, 0.5, 0.3, 0.1];

#[test]
fn temperature_zero_picks_the_first_of_the_largest() {
    let mut sampler = Llama2c::new(0.0, 0.9, 42).unwrap();
    assert_eq!(sampler.sample(&[1.0, 5.0, 5.0]), Ok(1));
    assert_eq!(sampler.rng, XorShift64Star::new(42), "no random number is taken");
}

#[test]
fn the_plain_draw_walks_the_tokens_in_order() {
    for top_p in [0.0, 1.0, -1.0, 2.0] {
        check(1.0, top_p, [1, 2, 2, 3, 2]);
    }
}

#[test]
fn top_p_draws_from_the_most_probable_in_descending_order() {
    // Kept for 0.7: 0.5 and 0.3, together 0.8. Coins by that: 0.271 0.626 0.632 0.755 0.612.
    check(1.0, 0.7, [1, 2, 2, 2, 2]);
    // Kept for 0.85: 0.5, 0.3 and the first 0.1, together 0.9. Coins: 0.305 0.704 0.711 0.850 0.688.
    check(1.0, 0.85, [1, 2, 2, 0, 2]);
    // Kept for 0.4: 0.5 alone.
    check(1.0, 0.4, [1, 1, 1, 1, 1]);
}

#[test]
fn temperature_divides_the_logits_before_the_softmax() {
    // At 0.5 the probabilities are squared: 0.028 0.694 0.25 0.028, with the sums 0.028 0.722 0.972 1.
    check(0.5, 1.0, [1, 2, 2, 2, 2]);
}

#[test]
fn a_vocabulary_of_one_token_has_one_answer() {
    assert_eq!(Llama2c::new(1.0, 0.9, 1).unwrap().sample(&[3.0]), Ok(0));
}

#[test]
fn what_gives_no_probabilities_is_an_error() {
    let sample = |logits: &[f32]| Llama2c::new(1.0, 0.9, 1).unwrap().sample(logits);
    assert_eq!(sample(&[]), Err(Error::NoLogits));
    assert!(sample(&[0.0, f32::NAN]).is_err());
    assert!(sample(&[f32::NEG_INFINITY; 3]).is_err());
    assert!(Llama2c::new(1e-30, 0.9, 1).unwrap().sample(&[1e30, 0.0]).is_err());
}

#[test]
fn bad_parameters_are_named() {
    let refused = |t, p, seed| Llama2c::new(t, p, seed).unwrap_err().to_string();
    assert_eq!(refused(-1.0, 0.9, 1), "temperature is -1: expected 0 or more");
    assert_eq!(
        refused(1.0, f32::NAN, 1),
        "top_p is NaN: expected a number; outside 0 to 1 every token takes part"
    );
    assert_eq!(refused(1.0, 0.9, 0), "seed is 0: expected 1 or more: this generator never leaves 0");
}

fn stream(seed: u64, expected: [u32; 5]) {
    let mut rng = XorShift64Star::new(seed);
    assert_eq!(std::array::from_fn(|_| rng.next_u32()), expected, "seed {seed}");
}

fn check(temperature: f32, top_p: f32, expected: [TokenId; 5]) {
    let mut sampler = Llama2c::new(temperature, top_p, 42).unwrap();
    let logits = PROBS.map(f32::ln);
    let picked: [TokenId; 5] = std::array::from_fn(|_| sampler.sample(&logits).unwrap());
    assert_eq!(picked, expected, "temperature {temperature}, top_p {top_p}");
}
