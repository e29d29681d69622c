//! Time of a step outside the device's work: a runner that computes nothing, 16 and 256 sequences that decode, and a thousand
//! requests that wait. `cargo run --release -p llmrt-engine --example host_time`.

use llmrt_engine::core::{CoreOptions, Rows, Runner, StepInputs};
use llmrt_engine::sampler::Candidate;
use llmrt_engine::scheduler::{SchedulerConfig, StepPlan};
use llmrt_engine::{EngineCore, Request, Result};
use std::time::{Duration, Instant};

/// Every row's largest logit is that of token 1.
struct NoDevice;

impl Runner for NoDevice {
    fn n_vocab(&self) -> usize {
        151_936
    }

    fn move_blocks(&mut self, _plan: &StepPlan) -> Result<()> {
        Ok(())
    }

    fn forward(&mut self, inputs: &StepInputs<'_>) -> Result<Rows> {
        let n_rows = inputs.batch.n_outputs();
        let largest = vec![vec![Candidate { id: 1, logit: 0.0 }]; n_rows];
        Ok(Rows { n_rows, logits: Vec::new(), largest })
    }
}

fn main() -> Result<()> {
    for (n_seqs, n_waiting) in [(16, 0), (16, 1000), (256, 0), (256, 1000)] {
        let scheduler = SchedulerConfig { max_num_seqs: n_seqs, ..SchedulerConfig::default() };
        let n_blocks = n_seqs * 80;
        let options = CoreOptions { scheduler, n_ctx: 1024, n_blocks, ..CoreOptions::default() };
        let mut core = EngineCore::new(NoDevice, None, options)?;
        for i in 0..n_seqs + n_waiting {
            core.add(Request::greedy((0..256).map(|token| token + i as u32).collect()))?;
        }
        while core.scheduler().counts()[1] < n_seqs {
            core.step()?;
        }
        let mut times: Vec<Duration> = (0..500)
            .map(|_| {
                let started = Instant::now();
                core.step().map(|_| started.elapsed())
            })
            .collect::<Result<_>>()?;
        times.sort();
        let [median, p99] = [times[250], times[495]].map(|time| time.as_secs_f64() * 1e6);
        println!(
            "{n_seqs:3} sequences, {n_waiting:4} waiting: median {median:.0} µs, 99 % {p99:.0} µs a step"
        );
    }
    Ok(())
}
