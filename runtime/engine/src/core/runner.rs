//! What executes a step.

use crate::batch::Batch;
use crate::error::{Error, Result};
use crate::runner::DeviceRunner;
use crate::sampler::{Candidate, Row};
use crate::scheduler::{PreemptionCost, StepPlan};
use crate::work::Work;
use llmrt_models::StepOutput;
use std::borrow::Cow;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

/// Computes logits. [`DeviceRunner`] does on devices; tests have runners without a model.
pub trait Runner {
    /// Tokens of the vocabulary.
    fn n_vocab(&self) -> usize;

    /// What requests its model serves.
    fn abilities(&self) -> Abilities {
        Abilities::default()
    }

    /// Whether an error has left it without its weights and caches, which [`Runner::prepare`] makes again, the caches empty.
    fn has_lost_memory(&self) -> bool {
        false
    }

    /// Makes what a step needs, if an error has left less.
    fn prepare(&mut self) -> Result<()> {
        Ok(())
    }

    /// Executes the moves of a plan: swap-outs, swap-ins, then block copies one after the other.
    fn move_blocks(&mut self, plan: &StepPlan) -> Result<()>;

    /// Computes a batch.
    fn forward(&mut self, inputs: &StepInputs<'_>) -> Result<()>;

    /// The requested logits of the last batch, which are valid until the next one.
    fn rows(&self) -> Result<Rows<'_>>;

    /// The measured times of swapping and recomputing, once there are both.
    fn preemption_cost(&self) -> Option<PreemptionCost> {
        None
    }

    /// What steps have executed on devices.
    fn work(&self) -> Work {
        Work::default()
    }

    /// Calls `body` with each number below `n`, on several threads where there are.
    fn for_each(&self, n: usize, body: &(dyn Fn(usize) + Sync)) {
        (0..n).for_each(body);
    }

    /// Whether to keep the hidden states of steps, for layers that predict ahead.
    fn keep_hidden(&mut self, keep: bool) {
        let _ = keep;
    }

    /// Keeps a warning for the program.
    fn warn(&mut self, warning: String) {
        let _ = warning;
    }

    /// Goes on after an error, or returns it. `caches_lost` is called if no block has contents any more.
    fn recover(&mut self, e: Error, caches_lost: &mut dyn FnMut()) -> Result<()> {
        let _ = caches_lost;
        Err(e)
    }
}

/// What requests a model serves. All models give hidden states.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Abilities {
    /// Whether tokens see those before them alone, so that text is generated token by token.
    pub is_causal: bool,
    /// Whether it has logits.
    pub has_logits: bool,
    /// What its weights are loaded for, besides hidden states.
    pub output: StepOutput,
}

/// Those of a decoder.
impl Default for Abilities {
    fn default() -> Abilities {
        Abilities { is_causal: true, has_logits: true, output: StepOutput::Logits }
    }
}

/// What a step computes.
#[derive(Debug)]
pub struct StepInputs<'a> {
    /// Its arrays.
    pub batch: &'a Batch,
    /// What is computed of its rows.
    pub output: StepOutput,
    /// By row of the batch, how many of the largest logits are needed; `None`: all.
    pub needs: Vec<Option<usize>>,
}

/// Logits of a step.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Rows<'a> {
    /// Rows in all.
    pub n_rows: usize,
    /// Rows that were read whole, one after the other.
    pub logits: Cow<'a, [f32]>,
    /// By row, the largest logits; empty for rows that were read whole. Without any rows, all were.
    pub largest: &'a [Vec<Candidate>],
}

impl Rows<'_> {
    /// The logits of row `i`.
    pub fn row(&self, i: usize) -> Row<'_> {
        let is_whole = |row: usize| self.largest.get(row).is_none_or(Vec::is_empty);
        if !is_whole(i) {
            return Row::Largest(&self.largest[i]);
        }
        let n_whole = (0..self.n_rows).filter(|&row| is_whole(row)).count();
        let before = (0..i).filter(|&row| is_whole(row)).count();
        let n_vocab = self.logits.len() / n_whole.max(1);
        Row::All(self.logits.get(before * n_vocab..(before + 1) * n_vocab).unwrap_or_default())
    }
}

impl Runner for DeviceRunner {
    fn n_vocab(&self) -> usize {
        self.model().config.n_vocab as usize
    }

    fn abilities(&self) -> Abilities {
        let spec = self.model().spec();
        let output = self.options.output(spec);
        Abilities { is_causal: spec.is_causal, has_logits: spec.has_logits, output }
    }

    fn has_lost_memory(&self) -> bool {
        self.needs_deployment
    }

    fn prepare(&mut self) -> Result<()> {
        self.ensure_deployed()
    }

    fn move_blocks(&mut self, plan: &StepPlan) -> Result<()> {
        self.swap_out(&plan.swap_out)?;
        self.swap_in(&plan.swap_in)?;
        self.copy_blocks(&plan.block_copies)
    }

    fn forward(&mut self, inputs: &StepInputs<'_>) -> Result<()> {
        self.n_bytes_read = 0;
        DeviceRunner::forward(self, inputs.batch, inputs.output, inputs.needs.clone())
    }

    fn rows(&self) -> Result<Rows<'_>> {
        self.results()
    }

    fn preemption_cost(&self) -> Option<PreemptionCost> {
        DeviceRunner::preemption_cost(self)
    }

    fn work(&self) -> Work {
        self.work.clone()
    }

    fn for_each(&self, n: usize, body: &(dyn Fn(usize) + Sync)) {
        let next = AtomicUsize::new(0);
        let rest = || (0..n).map(|_| next.fetch_add(1, Relaxed)).take_while(|i| *i < n).for_each(body);
        // Without threads this one does what is left.
        if self.host.threads().run(n.min(self.max_threads()), &|_| rest()).is_err() {
            rest();
        }
    }

    fn keep_hidden(&mut self, keep: bool) {
        DeviceRunner::keep_hidden(self, keep);
    }

    fn warn(&mut self, warning: String) {
        DeviceRunner::warn(self, warning);
    }

    fn recover(&mut self, e: Error, caches_lost: &mut dyn FnMut()) -> Result<()> {
        self.leave_out(e, caches_lost)
    }
}
