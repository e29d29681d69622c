//! A request gives the same tokens and log-probabilities, whatever is computed beside it.

use super::super::*;
use super::fake::{N_VOCAB, core, outputs, run};
use crate::beam::{BeamParams, EarlyStopping};
use crate::request::Decoding;
use crate::sampler::{Rng, SamplingParams};
use crate::scheduler::{Policy, Preemption};
use crate::sequence::TokenId;

/// Requests of all kinds, with few different beginnings.
fn requests(rng: &mut Rng) -> Vec<Request> {
    let mut below = |n: usize| (rng.next_f64() * n as f64) as usize;
    let mut requests = Vec::new();
    for i in 0..3 + below(8) {
        let beginning = below(2) as TokenId;
        let n = 1 + below(24);
        let prompt =
            (0..n as TokenId).map(|i| (beginning + i * (1 + beginning)) % N_VOCAB as TokenId).collect();
        let width = 1 + below(3);
        let params = SamplingParams { top_k: 0, ..SamplingParams::default() };
        let decoding = match below(4) {
            0 if width > 1 => Decoding::Beam(BeamParams {
                length_penalty: below(3) as f64,
                early_stopping: [EarlyStopping::Always, EarlyStopping::Likely, EarlyStopping::Never]
                    [below(3)],
            }),
            _ => Decoding::Sample { params, seed: i as u64 },
        };
        requests.push(Request {
            decoding,
            n: width,
            max_tokens: Some(1 + below(14)),
            logprobs: Some(1),
            stop_token_ids: vec![below(N_VOCAB) as TokenId],
            priority: below(2) as i32,
            ..Request::greedy(prompt)
        });
    }
    requests
}

#[test]
fn requests_in_random_mixes_give_what_they_give_alone() {
    let (mut n_preempted, mut n_cached) = (0, 0);
    for seed in 0..120 {
        let mut rng = Rng::new(seed);
        let requests = requests(&mut rng);
        let mut below = |n: usize| (rng.next_f64() * n as f64) as usize;
        let policy = [Policy::Chunked, Policy::PrefillFirst][below(2)];
        let least = if policy == Policy::PrefillFirst { 32 } else { 16 };
        let scheduler = SchedulerConfig {
            max_num_batched_tokens: [least, 40, 512][below(3)],
            max_num_seqs: 8,
            policy,
            preemption: [Preemption::Auto, Preemption::Recompute, Preemption::Swap][below(3)],
            prefix_cache: below(3) > 0,
            ..SchedulerConfig::default()
        };
        // The tightest pool that holds each request alone.
        let mut mixed = core(32, below(24), scheduler);
        let ids: Vec<_> = requests.iter().map(|r| mixed.add(r.clone()).unwrap()).collect();
        let mut events = Vec::new();
        let mut n_steps = 0;
        while !mixed.is_idle() {
            n_steps += 1;
            assert!(n_steps < 5000, "seed {seed}: {:#?}", mixed.scheduler());
            if below(10) == 0 {
                mixed.runner_mut().n_failures = 1;
                mixed.runner_mut().loses_caches = below(2) == 0;
            }
            let before = mixed.scheduler().counts();
            match mixed.step() {
                Ok(more) => events.extend(more),
                Err(Error::Cancelled) => {}
                Err(e) => panic!("seed {seed}: {e}"),
            }
            let after = mixed.scheduler().counts();
            n_preempted += usize::from(after[0] > before[0] || after[2] > before[2]);
        }
        let mixed_outputs = outputs(&events);
        for (id, request) in ids.iter().zip(requests) {
            let mut alone =
                core(64, 0, SchedulerConfig { prefix_cache: false, ..SchedulerConfig::default() });
            let alone_id = alone.add(request).unwrap();
            let expected = outputs(&run(&mut alone)).remove(&alone_id).unwrap();
            assert_eq!(mixed_outputs[id].outputs, expected.outputs, "seed {seed}: {id}");
            n_cached += mixed_outputs[id].usage.n_cached;
        }
        assert_eq!(mixed.scheduler().pool().n_used(), 0);
        assert_eq!(mixed.scheduler().host().blocks.n_used(), 0);
    }
    println!("{n_preempted} steps with preemption, {n_cached} cached tokens");
    assert!(n_preempted > 20 && n_cached > 100);
}
