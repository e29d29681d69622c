//! The chain as a whole: its order, its seed, its errors.

use super::*;

/// Probabilities 0.25 0.15 0.5 0.1.
fn logits() -> Vec<f32> {
    [0.25f32, 0.15, 0.5, 0.1].map(f32::ln).to_vec()
}

fn plain() -> SamplingParams {
    SamplingParams { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0, ..Default::default() }
}

#[test]
fn temperature_zero_picks_the_largest_whatever_else_is_set() {
    check(&SamplingParams { typical_p: 0.1, ..SamplingParams::greedy() }, &[], &[2]);
    check(&SamplingParams { temperature: -1.0, ..plain() }, &[], &[2]);
}

#[test]
fn penalties_and_biases_count_at_temperature_zero() {
    check(&SamplingParams { presence_penalty: 1.0, ..SamplingParams::greedy() }, &[2], &[0]);
    check(&SamplingParams { logit_bias: vec![(3, 9.0)], ..SamplingParams::greedy() }, &[], &[3]);
}

#[test]
fn only_recent_tokens_are_penalised() {
    let p = SamplingParams { presence_penalty: 1.0, repeat_last_n: 2, ..SamplingParams::greedy() };
    check(&p, &[2, 1, 1], &[2]);
    check(&p, &[1, 2, 1], &[0]);
}

#[test]
fn every_token_can_come_when_nothing_is_cut() {
    check(&plain(), &[], &[0, 1, 2, 3]);
}

#[test]
fn each_stage_cuts() {
    check(&SamplingParams { top_k: 2, ..plain() }, &[], &[0, 2]);
    check(&SamplingParams { top_p: 0.8, ..plain() }, &[], &[0, 1, 2]);
    check(&SamplingParams { min_p: 0.45, ..plain() }, &[], &[0, 2]);
    check(&SamplingParams { typical_p: 0.2, ..plain() }, &[], &[0]);
}

#[test]
fn later_stages_see_the_probabilities_of_what_is_left() {
    // Of 0.5 and 0.25 alone the first has 2/3, so that 0.6 is reached by it.
    check(&SamplingParams { top_k: 2, top_p: 0.6, ..plain() }, &[], &[2]);
    // Typical comes before top-p: it leaves 0.25 and 0.5, not the 0.5 that top-p would have left.
    check(&SamplingParams { typical_p: 0.7, top_p: 0.7, ..plain() }, &[], &[0, 2]);
}

#[test]
fn temperature_comes_after_the_cuts() {
    // Hot enough to level all tokens, but top-p still sees 0.5 + 0.25.
    check(&SamplingParams { temperature: 100.0, top_p: 0.7, ..plain() }, &[], &[0, 2]);
}

#[test]
fn a_forbidden_token_never_comes() {
    let p = SamplingParams { logit_bias: vec![(2, f32::NEG_INFINITY)], ..plain() };
    check(&p, &[], &[0, 1, 3]);
}

#[test]
fn a_seed_gives_the_same_tokens_again() {
    let draw = |seed, random_seed| {
        let mut sampler = Sampler::new(SamplingParams { seed, ..plain() }, random_seed).unwrap();
        (0..50).map(|_| sampler.sample(&logits(), &[]).unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(draw(Some(7), 1), draw(Some(7), 2));
    assert_eq!(draw(None, 7), draw(Some(7), 0));
    assert_ne!(draw(Some(7), 0), draw(Some(8), 0));
}

#[test]
fn nonsense_logits_are_an_error() {
    let sample = |p, logits: &[f32]| Sampler::new(p, 0).unwrap().sample(logits, &[]);
    assert_eq!(sample(plain(), &[]), Err(Error::NoLogits));
    assert!(matches!(sample(plain(), &[0.0, f32::NAN]), Err(Error::BadLogit { token: 1, .. })));
    assert!(matches!(sample(SamplingParams::greedy(), &[f32::NAN]), Err(Error::BadLogit { token: 0, .. })));
    assert_eq!(sample(plain(), &[f32::NEG_INFINITY; 2]), Err(Error::AllForbidden));
    let bias = SamplingParams { logit_bias: vec![(4, 1.0)], ..plain() };
    assert_eq!(sample(bias, &logits()), Err(Error::BiasOutOfVocab { token: 4, n_vocab: 4 }));
}

#[test]
fn bad_parameters_make_no_sampler() {
    assert!(Sampler::new(SamplingParams { top_p: 2.0, ..plain() }, 0).is_err());
    assert!(Sampler::llama2c(1.0, 0.9, 0).is_err());
}

#[test]
fn a_large_vocabulary_samples_without_any_cut() {
    let logits: Vec<f32> = (0..256_000).map(|i| ((i * 7919) % 256_000) as f32 / 25_600.0).collect();
    for p in [
        plain(),
        SamplingParams::default(),
        SamplingParams { top_k: 0, typical_p: 0.9, ..Default::default() },
    ] {
        let token = Sampler::new(p, 1).unwrap().sample(&logits, &[]).unwrap();
        assert!((token as usize) < logits.len());
    }
}

/// The tokens that come in 500 draws.
fn check(params: &SamplingParams, history: &[TokenId], expected: &[TokenId]) {
    let mut sampler = Sampler::new(params.clone(), 3).unwrap();
    let mut seen: Vec<_> = (0..500).map(|_| sampler.sample(&logits(), history).unwrap()).collect();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen, expected, "{params:?}");
}
