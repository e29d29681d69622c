//! What happens when a device fails while a step runs: the model is assembled anew on the devices that are left, and
//! what the lost caches held is computed again from the tokens, which the host never loses.

use crate::batch::{Batch, Logits};
use crate::deployment::{Deployment, lost};
use crate::device_topk::TopKRequest;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::program::Results;
use crate::schedule::{ScheduledChunk, StepPlan};
use llmrt_host::load::LoadOptions;

impl Engine {
    /// What is request of a batch's logits, whatever devices fail on the way: as long as one is left that can do it.
    pub(crate) fn forward_or_recover(&mut self, batch: &Batch, request: &TopKRequest) -> Result<Results> {
        loop {
            match self.forward(batch, request) {
                Err(e) => self.recover(e)?,
                results => return results,
            }
        }
    }

    /// Goes on without the device that failed with `e`; gives `e` back if no device is lost, or strict placement
    /// forbids it. Caches are then as they were.
    fn recover(&mut self, mut e: Error) -> Result<()> {
        loop {
            let Some(d) = lost(&self.devices, &e).filter(|_| !self.options.strict) else { return Err(e) };
            let mut devices = self.devices.clone();
            let name = devices.remove(d).name().to_string();
            self.warnings.push(format!(
                "{name} is not used any more: {e}; going on without it, and what its memory held is computed again"
            ));
            self.executor.clear();
            let mut silent = |_| true;
            let load = LoadOptions { mode: self.load_mode, check_tensors: false, progress: &mut silent };
            let deployment = Deployment::new(devices, &self.files, load, &self.options)?;
            self.adopt(deployment);
            match self.recompute() {
                Ok(()) => return Ok(()),
                Err(next) => e = next,
            }
        }
    }

    /// Fills the caches with what all sequences had in them.
    fn recompute(&mut self) -> Result<()> {
        for i in 0..self.queue.len() {
            let n_computed = self.queue[i].n_computed();
            self.queue[i].forget_computed();
            let outcome = self.compute_up_to(i, n_computed);
            // Whatever came of it, so that another try knows where to go.
            let left = n_computed - self.queue[i].n_computed();
            self.queue[i].advance(left);
            outcome?;
        }
        Ok(())
    }

    fn compute_up_to(&mut self, i: usize, n_computed: usize) -> Result<()> {
        while self.queue[i].n_computed() < n_computed {
            let seq = &self.queue[i];
            let n_new = (n_computed - seq.n_computed()).min(self.options.n_batch);
            let plan = StepPlan { chunks: vec![ScheduledChunk { id: seq.id, n_new }], ..StepPlan::default() };
            let batch = Batch::new(&plan, &self.queue, &self.pool, self.options.max_blocks(), Logits::Last)?;
            self.forward(&batch, &TopKRequest::default())?;
            self.queue[i].advance(n_new);
        }
        Ok(())
    }
}
