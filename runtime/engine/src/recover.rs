//! What happens when a device fails while a step runs: the model is deployed again on the devices that are left, and
//! what the lost caches held is computed again from the tokens, which the host keeps.

use crate::batch::{Batch, Logits};
use crate::device_topk::TopKRequest;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::program::Results;
use crate::schedule::StepPlan;
use crate::scheduler::ScheduledChunk;

impl Engine {
    /// The requested logits of a batch, whatever devices fail on the way, as long as one is left that can compute them.
    pub(crate) fn forward_or_recover(&mut self, batch: &mut Batch, request: &TopKRequest) -> Result<Results> {
        loop {
            match self.runner.forward(batch, request) {
                Err(e) => {
                    self.recover(e)?;
                    self.state_slots.fill(batch);
                }
                results => return results,
            }
        }
    }

    /// Goes on without the device that failed with `e`; returns `e` if no device is lost, or strict placement
    /// forbids it. Caches are then as they were.
    ///
    /// Whatever ends it early, cancelling too: the sequences count as computed only what the new caches hold, so that
    /// the next step goes on from there.
    fn recover(&mut self, mut e: Error) -> Result<()> {
        let computed: Vec<usize> = self.queue.iter().map(|seq| seq.n_computed()).collect();
        loop {
            let (queue, pool) = (&mut self.queue, &mut self.pool);
            self.runner.leave_out(e, || {
                queue.iter_mut().for_each(|seq| seq.forget_computed());
                pool.forget_all();
            })?;
            match self.recompute(&computed) {
                Ok(()) => return Ok(()),
                Err(next) => e = next,
            }
        }
    }

    /// Fills the caches with the first `computed` tokens of each sequence.
    fn recompute(&mut self, computed: &[usize]) -> Result<()> {
        computed.iter().enumerate().try_for_each(|(i, &n)| self.compute_up_to(i, n))
    }

    fn compute_up_to(&mut self, i: usize, n_computed: usize) -> Result<()> {
        let n_batch = self.runner.options.n_batch;
        while self.queue[i].n_computed() < n_computed {
            let seq = &self.queue[i];
            let n_new = (n_computed - seq.n_computed()).min(n_batch);
            let mut plan =
                StepPlan { chunks: vec![ScheduledChunk { id: seq.id, n_new }], ..StepPlan::default() };
            self.state_slots.assign(&mut plan.chunks, &mut self.queue);
            let batch = self.batch(&plan, Logits::Last)?;
            self.runner.forward(&batch, &TopKRequest::default())?;
            self.advance(i, n_new)?;
        }
        Ok(())
    }
}
