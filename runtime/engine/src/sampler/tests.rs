//! The chain as a whole: its order, its seed, its errors.

use super::*;
use proptest::prelude::*;

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
        (0..50).map(|_| sampler.sample(Row::All(&logits()), &[], 0).unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(draw(Some(7), 1), draw(Some(7), 2));
    assert_eq!(draw(None, 7), draw(Some(7), 0));
    assert_ne!(draw(Some(7), 0), draw(Some(8), 0));
}

#[test]
fn nonsense_logits_are_an_error() {
    let sample = |p, logits: &[f32]| Sampler::new(p, 0).unwrap().sample(Row::All(logits), &[], 0);
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
        let token = Sampler::new(p, 1).unwrap().sample(Row::All(&logits), &[], 0).unwrap();
        assert!((token as usize) < logits.len());
    }
}

#[test]
fn too_few_of_the_largest_logits_are_an_error_and_not_a_token() {
    let largest = largest(&logits(), 2);
    let sample = |p| Sampler::new(p, 0).unwrap().sample(Row::Largest(&largest), &[], 0);
    let refused = |p| sample(p).unwrap_err().to_string();
    assert!(
        refused(SamplingParams { top_k: 3, ..plain() })
            .starts_with("the 2 largest logits are given: the sampler needs 3;")
    );
    assert!(refused(plain()).contains("the sampler needs all;"));
    assert_eq!(sample(SamplingParams::greedy()), Ok(2));
    let mut llama2c = Sampler::llama2c(1.0, 0.9, 1).unwrap();
    assert!(matches!(llama2c.sample(Row::Largest(&largest), &[], 0), Err(Error::TooFewLogits { .. })));
}

/// Logits with many equal ones, zeros of both signs and tokens that cannot come.
fn coarse_logits() -> impl Strategy<Value = Vec<f32>> {
    let logit = prop_oneof![
        12 => (-6i8..6).prop_map(|v| f32::from(v) / 2.0),
        1 => Just(-0.0),
        1 => Just(f32::NEG_INFINITY),
        1 => -3f32..3.0,
    ];
    prop::collection::vec(logit, 1..200)
}

fn any_sampler() -> impl Strategy<Value = Sampler> {
    let cuts = (1..60i32, 0.0..=1f32, 0.0..=1f32, 0.5..=1f32);
    let temperature = prop_oneof![1 => Just(0.0), 4 => 0.1..2f32];
    let chain = (temperature, cuts, any::<u64>()).prop_map(|(temperature, cuts, seed)| {
        let (top_k, top_p, min_p, typical_p) = cuts;
        // Each cut alone, and all together.
        let on = |bit: u32, value: f32, off: f32| if seed >> bit & 1 == 0 { off } else { value };
        let (top_p, min_p, typical_p) = (on(0, top_p, 1.0), on(1, min_p, 0.0), on(2, typical_p, 1.0));
        let params = SamplingParams { temperature, top_k, top_p, min_p, typical_p, ..plain() };
        Sampler::new(params, seed).unwrap()
    });
    prop_oneof![9 => chain, 1 => Just(Sampler::llama2c(0.0, 0.9, 1).unwrap())]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn the_largest_logits_alone_give_the_same_tokens(
        logits in coarse_logits(),
        sampler in any_sampler(),
        more in 0..40usize,
    ) {
        let n = sampler.required_top_k().unwrap() + more;
        prop_assume!(n < logits.len());
        let largest = largest(&logits, n);
        let (mut of_all, mut of_largest) = (sampler.clone(), sampler);
        for _ in 0..20 {
            let expected = of_all.sample(Row::All(&logits), &[], 0);
            prop_assert_eq!(of_largest.sample(Row::Largest(&largest), &[], 0), expected);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Few candidates give the token that all of the vocabulary give, with penalties and biases too.
    #[test]
    fn selected_candidates_give_the_same_tokens_as_all(
        logits in coarse_logits(),
        sampler in any_sampler(),
        history in prop::collection::vec(0..220u32, 0..40),
        (repeat, frequency, presence) in (0.5..2f32, -1.0..1f32, -1.0..1f32),
        biases in prop::collection::vec((0..220u32, prop_oneof![Just(f32::NEG_INFINITY), -4.0..4f32]), 0..4),
    ) {
        let Sampler::Chain(mut chain) = sampler else { return Ok(()) };
        chain.params.repeat_penalty = repeat;
        (chain.params.frequency_penalty, chain.params.presence_penalty) = (frequency, presence);
        chain.params.logit_bias = biases;
        let mut of_all = chain.clone();
        for _ in 0..10 {
            candidate::read(&logits, &mut of_all.candidates).unwrap();
            let expected = of_all.pick(logits.len(), &history, 0);
            prop_assert_eq!(chain.sample(Row::All(&logits), &history, 0), expected);
        }
    }
}

/// What the op top_k finds: the order of its reference, on the logits as they are.
fn largest(logits: &[f32], n: usize) -> Vec<Candidate> {
    let mut sorted: Vec<_> = logits.iter().zip(0..).map(|(&logit, id)| Candidate { id, logit }).collect();
    sorted.sort_by(|a, b| b.logit.partial_cmp(&a.logit).unwrap());
    sorted.truncate(n);
    sorted
}

/// The tokens that come in 500 draws.
fn check(params: &SamplingParams, history: &[TokenId], expected: &[TokenId]) {
    let mut sampler = Sampler::new(params.clone(), 3).unwrap();
    let mut seen: Vec<_> =
        (0..500).map(|_| sampler.sample(Row::All(&logits()), history, 0).unwrap()).collect();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen, expected, "{params:?}");
}
