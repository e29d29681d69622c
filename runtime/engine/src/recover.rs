//! What happens when a device fails while a step runs: the model is deployed again on the devices that are left, and
//! what the lost caches held is computed again from the tokens, which the host keeps.

use crate::batch::{Batch, Logits};
use crate::deployment::{Deployment, lost};
use crate::device_topk::TopKRequest;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::program::Results;
use crate::schedule::{ScheduledChunk, StepPlan};
use llmrt_host::load::LoadOptions;

impl Engine {
    /// The requested logits of a batch, whatever devices fail on the way, as long as one is left that can compute them.
    pub(crate) fn forward_or_recover(&mut self, batch: &Batch, request: &TopKRequest) -> Result<Results> {
        loop {
            match self.forward(batch, request) {
                Err(e) => self.recover(e)?,
                results => return results,
            }
        }
    }

    /// Makes the executor again if a cancelled recovery has left none.
    pub(crate) fn ensure_deployed(&mut self) -> Result<()> {
        if self.needs_deployment { self.deploy() } else { Ok(()) }
    }

    /// Goes on without the device that failed with `e`; returns `e` if no device is lost, or strict placement
    /// forbids it. Caches are then as they were.
    ///
    /// Whatever ends it early, cancelling too: the sequences count as computed only what the new caches hold, so that
    /// the next step goes on from there.
    fn recover(&mut self, mut e: Error) -> Result<()> {
        let computed: Vec<usize> = self.queue.iter().map(|seq| seq.n_computed()).collect();
        loop {
            let is_allowed = !self.options.strict && !e.is_cancelled();
            let Some(d) = lost(&self.devices, &e).filter(|_| is_allowed) else { return Err(e) };
            let name = self.devices.remove(d).name().to_string();
            self.warnings.push(format!(
                "{name} is not used any more: {e}; going on without it, and what its memory held is computed again"
            ));
            self.executor.clear();
            self.needs_deployment = true;
            self.queue.iter_mut().for_each(|seq| seq.forget_computed());
            self.pool.forget_all();
            self.deploy()?;
            match self.recompute(&computed) {
                Ok(()) => return Ok(()),
                Err(next) => e = next,
            }
        }
    }

    /// Loads the model onto the devices that are left, unless that is cancelled.
    fn deploy(&mut self) -> Result<()> {
        let cancel = self.cancel.clone();
        let mut goes_on = |_| !cancel.is_cancelled();
        let load = LoadOptions { mode: self.load_mode, check_tensors: false, progress: &mut goes_on };
        let deployment = Deployment::new(self.devices.clone(), &self.files, load, &self.options);
        let deployment = deployment.map_err(|e| if e.is_cancelled() { Error::Cancelled } else { e })?;
        self.adopt(deployment);
        Ok(())
    }

    /// Fills the caches with the first `computed` tokens of each sequence.
    fn recompute(&mut self, computed: &[usize]) -> Result<()> {
        computed.iter().enumerate().try_for_each(|(i, &n)| self.compute_up_to(i, n))
    }

    fn compute_up_to(&mut self, i: usize, n_computed: usize) -> Result<()> {
        while self.queue[i].n_computed() < n_computed {
            let seq = &self.queue[i];
            let n_new = (n_computed - seq.n_computed()).min(self.options.n_batch);
            let plan = StepPlan { chunks: vec![ScheduledChunk { id: seq.id, n_new }], ..StepPlan::default() };
            let batch = Batch::new(&plan, &self.queue, &self.pool, self.options.max_blocks(), Logits::Last)?;
            self.forward(&batch, &TopKRequest::default())?;
            self.advance(i, n_new)?;
        }
        Ok(())
    }
}
