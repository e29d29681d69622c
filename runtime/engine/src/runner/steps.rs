//! Steps on devices: padded to few shapes, each with a program that is made once.

use super::DeviceRunner;
use crate::batch::Batch;
use crate::core::Rows;
use crate::device_topk::TopKRequest;
use crate::error::Result;
use crate::program::StepShape;
use llmrt_models::StepOutput;
use std::borrow::Cow;
use std::time::{Duration, Instant};

/// The programs of steps.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ProgramStats {
    /// Made before the first step.
    pub n_prepared: usize,
    /// How long that took.
    pub prepare_time: Duration,
    /// Steps of another shape, whose programs were made for them.
    pub n_misses: usize,
}

/// Tokens of a step, besides one of each sequence, from which on it counts as prefill.
const PREFILL_TOKENS: usize = 16;

impl DeviceRunner {
    /// What is picked of the rows of a batch whose samplers need so many of the largest logits; `None`: all of them.
    fn top_k_request(&self, needs: Vec<Option<usize>>) -> TopKRequest {
        // The baseline alone has its logits in host memory.
        let is_alone = self.deployment.devices.len() == 1;
        let keep_from = if is_alone { u64::MAX } else { self.options.keep_logits_from };
        TopKRequest::new(needs, self.model().config.n_vocab, keep_from)
    }

    /// Computes a batch, of whose rows so many of the largest logits are needed (`None`: all).
    pub(crate) fn forward(
        &mut self,
        batch: &Batch,
        output: StepOutput,
        needs: Vec<Option<usize>>,
    ) -> Result<()> {
        let request = self.top_k_request(needs);
        let padded = batch.padded(self.options.padding());
        let step = padded.as_ref().unwrap_or(batch);
        let started = Instant::now();
        self.results.clear(batch.n_outputs());
        self.run(step, output, &request, batch.n_tokens())?;
        self.adapt()?;
        if output == StepOutput::Logits && self.keeps_hidden {
            self.record_hidden(batch);
        }
        if batch.n_tokens() >= PREFILL_TOKENS + batch.n_seqs() {
            self.timed.prefill(started, batch.n_tokens());
        }
        Ok(())
    }

    /// The requested logits of the last step.
    pub(crate) fn results(&self) -> Result<Rows<'_>> {
        let results = &self.results;
        let step = self.deployment.last.and_then(|shape| self.deployment.programs.get(&shape));
        let logits = match step {
            Some(step) if results.are_in_place => step.logits(&self.deployment.executor, results.n_rows)?,
            _ => Cow::Borrowed(&results.logits[..]),
        };
        Ok(Rows { n_rows: results.n_rows, logits, largest: &results.largest })
    }

    /// Runs a step, reads its first rows, and counts what the first `n_tokens` needed.
    fn run(
        &mut self,
        batch: &Batch,
        output: StepOutput,
        request: &TopKRequest,
        n_tokens: usize,
    ) -> Result<()> {
        let shape = self.options.shape_of(batch, output);
        let shape = StepShape { batch: shape, n_picked: request.n_picked };
        let deployment = &mut self.deployment;
        let n_misses = deployment.programs.stats().n_misses;
        deployment.programs.ensure(shape, &deployment.model, &deployment.executor)?;
        self.work.n_program_misses += (deployment.programs.stats().n_misses - n_misses) as u64;
        let step = &deployment.programs[&shape];
        if let Err(e) = step.run(&mut deployment.executor, batch) {
            // Picking takes memory that the logits alone do not.
            if !(step.picks() && e.is_out_of_device_memory()) {
                return Err(e);
            }
            deployment.programs.without_picking(shape, &deployment.model, &deployment.executor)?;
            return self.run(batch, output, request, n_tokens);
        }
        deployment.last = Some(shape);
        if let Ok(report) = deployment.executor.report(&deployment.programs[&shape].program) {
            self.work.add(report);
        }
        deployment.programs[&shape].add_needed(&mut deployment.executor, &mut self.work.needed)?;
        self.count_firings(n_tokens)?;
        let deployment = &mut self.deployment;
        let step = &deployment.programs[&shape];
        if self.results.n_rows > 0 {
            self.n_bytes_read = step.read(&mut deployment.executor, request, &mut self.results)?;
        }
        Ok(())
    }

    /// The programs of steps so far.
    pub fn program_stats(&self) -> ProgramStats {
        self.deployment.programs.stats()
    }
}
