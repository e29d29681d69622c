//! What one token costs the sampler: from a whole row of 151 936 logits, and from the 64 largest alone.
//! `cargo run --release -p llmrt-engine --example sampling`

use llmrt_engine::sampler::Candidate;
use llmrt_engine::{Row, Sampler, SamplingParams};
use std::time::Instant;

const N_VOCAB: u32 = 151_936;
const N_TOKENS: u32 = 500;

fn main() {
    // Bell-shaped, as a model's are: sums of four numbers of a linear congruential generator.
    let mut state = 1u64;
    let mut uniform = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 24) as f32
    };
    let logits: Vec<f32> = (0..N_VOCAB).map(|_| 8.0 * (0..4).map(|_| uniform() - 0.5).sum::<f32>()).collect();
    let mut largest: Vec<_> = (0..).zip(&logits).map(|(id, &logit)| Candidate { id, logit }).collect();
    largest.sort_by(|a, b| b.logit.total_cmp(&a.logit));
    largest.truncate(64);

    let default = SamplingParams { seed: Some(1), ..SamplingParams::default() };
    let cases = [
        ("greedy", SamplingParams::greedy()),
        ("top-k 40, top-p 0.95, min-p 0.05", default.clone()),
        ("top-p 0.95 alone", SamplingParams { top_k: 0, min_p: 0.0, ..default }),
    ];
    for (name, params) in cases {
        let mut sampler = Sampler::new(params, 0).expect("good parameters");
        let is_few_enough = sampler.required_top_k().is_some();
        let mut time = |row: Row<'_>| {
            let started = Instant::now();
            for _ in 0..N_TOKENS {
                sampler.sample(row, &[], 0).expect("good logits");
            }
            format!("{:.1} µs", started.elapsed().as_secs_f64() * 1e6 / f64::from(N_TOKENS))
        };
        let whole = time(Row::All(&logits));
        let few = if is_few_enough { time(Row::Largest(&largest)) } else { "not enough".to_string() };
        println!("{name}: whole row {whole}, 64 largest {few}");
    }
}
