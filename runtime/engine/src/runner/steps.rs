//! Steps on devices: padded to few shapes, each with a program that is made once.

use super::DeviceRunner;
use crate::batch::Batch;
use crate::device_topk::TopKRequest;
use crate::error::Result;
use crate::program::{Results, StepShape};
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

    /// The requested logits of a batch, of whose rows so many of the largest logits are needed (`None`: all). None when it has
    /// no outputs.
    pub(crate) fn forward(&mut self, batch: &Batch, needs: Vec<Option<usize>>) -> Result<Results> {
        let request = self.top_k_request(needs);
        let padded = batch.padded(self.options.padding());
        let step = padded.as_ref().unwrap_or(batch);
        let started = Instant::now();
        let results = self.run(step, &request, batch.n_outputs())?;
        if batch.n_tokens() >= PREFILL_TOKENS + batch.n_seqs() {
            self.timed.prefill(started, batch.n_tokens());
        }
        Ok(results)
    }

    /// Runs a step and reads its first `n_rows` rows.
    fn run(&mut self, batch: &Batch, request: &TopKRequest, n_rows: usize) -> Result<Results> {
        let shape = self.options.shape_of(batch);
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
            deployment.programs.without_picking(shape, &deployment.model)?;
            return self.run(batch, request, n_rows);
        }
        deployment.last = Some(shape);
        if let Ok(report) = deployment.executor.report(&deployment.programs[&shape].program) {
            self.work.add(report);
        }
        if n_rows == 0 {
            return Ok(Results::default());
        }
        let (results, n_bytes) = step.read(&mut deployment.executor, request, n_rows)?;
        self.n_bytes_read = n_bytes;
        Ok(results)
    }

    /// The programs of steps so far.
    pub fn program_stats(&self) -> ProgramStats {
        self.deployment.programs.stats()
    }
}
