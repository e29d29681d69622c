//! Time of a step outside the device's work, with a runner that computes nothing.
//! `cargo run --release -p llmrt-engine --example host_time`
//!
//! First the largest logits of each row alone, as cards with top-k give them: 16 and 256 sequences that decode, and a thousand
//! requests that wait. Then whole rows of 151 936 logits, as the CPU gives them, sampled on one thread and on all.

use llmrt_engine::core::{CoreOptions, Rows, Runner, StepInputs};
use llmrt_engine::sampler::Candidate;
use llmrt_engine::scheduler::{SchedulerConfig, StepPlan};
use llmrt_engine::{Decoding, EngineCore, Request, Result, SamplingParams};
use llmrt_host::ThreadPool;
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

const N_VOCAB: usize = 151_936;

/// Logits that were not computed.
struct NoDevice {
    /// Every row, or none: then the largest logit is that of token 1.
    row: Vec<f32>,
    pool: Option<Arc<ThreadPool>>,
    /// Of the last step.
    n_rows: usize,
    logits: Vec<f32>,
    largest: Vec<Vec<Candidate>>,
    /// Time in the last call of `forward`.
    forward: Duration,
}

impl Runner for NoDevice {
    fn n_vocab(&self) -> usize {
        N_VOCAB
    }

    fn move_blocks(&mut self, _plan: &StepPlan) -> Result<()> {
        Ok(())
    }

    fn forward(&mut self, inputs: &StepInputs<'_>) -> Result<()> {
        let started = Instant::now();
        self.n_rows = inputs.batch.n_outputs();
        self.largest = match self.row.is_empty() {
            true => vec![vec![Candidate { id: 1, logit: 0.0 }]; self.n_rows],
            false => Vec::new(),
        };
        self.logits = self.row.repeat(self.n_rows);
        self.forward = started.elapsed();
        Ok(())
    }

    fn rows(&self) -> Result<Rows<'_>> {
        Ok(Rows { n_rows: self.n_rows, logits: Cow::Borrowed(&self.logits), largest: &self.largest })
    }

    fn for_each(&self, n: usize, body: &(dyn Fn(usize) + Sync)) {
        let Some(pool) = &self.pool else { return (0..n).for_each(body) };
        let next = AtomicUsize::new(0);
        let work = || (0..n).map(|_| next.fetch_add(1, Relaxed)).take_while(|i| *i < n).for_each(body);
        pool.run(n, &|_| work()).expect("threads");
    }
}

fn main() -> Result<()> {
    for (n_seqs, n_waiting) in [(16, 0), (16, 1000), (256, 0), (256, 1000)] {
        let name = format!("{n_seqs:3} sequences, {n_waiting:4} waiting");
        measure(&name, NoDevice::new(Vec::new(), None), (n_seqs, n_waiting), &SamplingParams::greedy())?;
    }
    // About a normal distribution, and fifty tokens that are likelier, as after a text.
    let mut state = 1u64;
    let mut uniform = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u64 << 24) as f32
    };
    let logit = |i: usize| {
        let base = (0..6).map(|_| 3.5 * uniform()).sum::<f32>() - 10.5;
        if i.is_multiple_of(3000) { base + 14.0 * uniform() } else { base }
    };
    let row: Vec<f32> = (0..N_VOCAB).map(logit).collect();
    let pool = ThreadPool::new(0, Duration::from_micros(50));
    for (sampler, params) in [
        ("greedy", SamplingParams::greedy()),
        ("default", SamplingParams::default()),
        ("no top-k", SamplingParams { top_k: 0, ..SamplingParams::default() }),
    ] {
        for (threads, pool) in [("one thread", None), ("all threads", Some(pool.clone()))] {
            let name = format!(" 16 whole rows, {sampler} sampler, {threads}");
            measure(&name, NoDevice::new(row.clone(), pool), (16, 0), &params)?;
        }
    }
    Ok(())
}

impl NoDevice {
    fn new(row: Vec<f32>, pool: Option<Arc<ThreadPool>>) -> NoDevice {
        let (logits, largest) = (Vec::new(), Vec::new());
        NoDevice { row, pool, n_rows: 0, logits, largest, forward: Duration::ZERO }
    }
}

/// Prints the times of 300 steps.
fn measure(
    name: &str,
    runner: NoDevice,
    (n_seqs, n_waiting): (usize, usize),
    params: &SamplingParams,
) -> Result<()> {
    let scheduler = SchedulerConfig { max_num_seqs: n_seqs, ..SchedulerConfig::default() };
    let options = CoreOptions { scheduler, n_ctx: 1024, n_blocks: n_seqs * 80, ..CoreOptions::default() };
    let mut core = EngineCore::new(runner, None, options)?;
    for i in 0..n_seqs + n_waiting {
        let prompt = (0..256).map(|token| token + i as u32).collect();
        let decoding = Decoding::Sample { params: params.clone(), seed: i as u64 };
        core.add(Request { decoding, ..Request::greedy(prompt) })?;
    }
    while core.scheduler().counts()[1] < n_seqs {
        core.step()?;
    }
    let mut times: Vec<Duration> = (0..300)
        .map(|_| {
            let started = Instant::now();
            core.step().map(|_| started.elapsed() - core.runner().forward)
        })
        .collect::<Result<_>>()?;
    times.sort();
    let [median, p99] = [times[150], times[297]].map(|time| time.as_secs_f64() * 1e6);
    println!("{name}: median {median:.0} µs, 99 % {p99:.0} µs a step");
    Ok(())
}
