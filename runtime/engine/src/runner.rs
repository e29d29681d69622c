//! Executes steps on devices: one program per shape of step, block moves, and what happens when a device fails.

mod adapt;
mod ahead;
mod caches;
mod per_op;
mod steps;

pub(crate) use adapt::Adapting;
pub use per_op::{VisitInputs, VisitOp};
pub use steps::ProgramStats;

use crate::core::{CoreOptions, EngineCore};
use crate::deployment::{Deployment, lost};
use crate::error::{Error, Result};
use crate::options::EngineOptions;
use crate::program::Results;
use crate::scheduler::SchedulerConfig;
use crate::sequence::SequenceId;
use crate::work::Work;
use caches::Timed;
use llmrt_host::load::{LoadMode, LoadOptions, ModelFiles};
use llmrt_host::sched::executor::Executor;
use llmrt_host::sched::report::Report;
use llmrt_host::{CancelToken, Device, Host, PoolStats};
use llmrt_models::Model;
use llmrt_tokenizer::Tokenizer;
use std::collections::HashMap;
use std::sync::Arc;

/// A model on its devices.
pub struct DeviceRunner {
    /// The devices' threads and services live as long.
    pub(crate) host: Arc<Host>,
    pub(crate) options: EngineOptions,
    /// For going on without a device that fails.
    files: Arc<ModelFiles>,
    load_mode: LoadMode,
    deployment: Deployment,
    /// Set when the executor's memory is gone: the model must be deployed again before the next step.
    pub(crate) needs_deployment: bool,
    cancel: CancelToken,
    pub(crate) n_bytes_read: u64,
    /// Of the last step.
    results: Results,
    /// By sequence, the position of the first row of its last step, and what layers that predict ahead take of each row.
    hidden: HashMap<SequenceId, (usize, Vec<f32>)>,
    keeps_hidden: bool,
    /// By cache, the blocks and states that were swapped out.
    host_blocks: HashMap<String, Vec<u8>>,
    timed: Timed,
    pub(crate) work: Work,
}

impl DeviceRunner {
    /// Places the model on `devices` (first choice first, the CPU baseline last), loads its weights there, and
    /// allocates the KV cache and the compute memory of the largest step. A device that fails is left out with a
    /// warning, now and in any later step, unless placement is strict.
    pub fn new(
        host: &Arc<Host>,
        devices: Vec<Arc<Device>>,
        files: impl Into<Arc<ModelFiles>>,
        load: LoadOptions<'_>,
        options: EngineOptions,
    ) -> Result<DeviceRunner> {
        let (files, load_mode) = (files.into(), load.mode);
        let deployment = Deployment::new(devices, &files, load, &options)?;
        let mut runner = DeviceRunner {
            host: host.clone(),
            options,
            files,
            load_mode,
            deployment,
            needs_deployment: false,
            cancel: CancelToken::new(),
            n_bytes_read: 0,
            results: Results::default(),
            hidden: HashMap::new(),
            keeps_hidden: false,
            host_blocks: HashMap::new(),
            timed: Timed::default(),
            work: Work::default(),
        };
        let (given, n_ctx) = (runner.options.n_ctx, runner.n_ctx());
        if n_ctx < given {
            runner.warn(format!(
                "the context holds {n_ctx} tokens, not {given}: the model has vectors of so many positions"
            ));
        }
        Ok(runner)
    }

    /// Tokens that a sequence may reach: those of the options, and no more than the model has vectors of positions.
    fn n_ctx(&self) -> usize {
        let n_positions = self.model().spec().n_positions.and_then(|n| usize::try_from(n).ok());
        self.options.n_ctx.min(n_positions.unwrap_or(usize::MAX))
    }

    /// A core over this runner: its context, its batch size, a queue of requests. Without a tokenizer there are tokens and no
    /// text.
    pub fn into_core(mut self, tokenizer: Option<Arc<Tokenizer>>) -> Result<EngineCore<DeviceRunner>> {
        let (n_host_blocks, n_host_states) = self.swap_space();
        if n_host_blocks > 0 {
            self.time_a_block()?;
        }
        let options = &self.options;
        let max_num_seqs = options.max_seqs.max(1);
        let scheduler = SchedulerConfig {
            max_num_batched_tokens: options.max_num_batched_tokens(),
            max_num_seqs,
            max_num_prompt_logits: options.max_prompt_logits.max(1),
            watermark: options.watermark(options.n_blocks()),
            policy: options.policy,
            preemption: options.preemption,
            cost: self.preemption_cost(),
            prefix_cache: options.prefix_cache,
            is_causal: self.model().spec().is_causal,
        };
        let decoder_start = self.model().spec().has_encoder().then(|| {
            let bos = tokenizer.as_ref().and_then(|tokenizer| tokenizer.bos());
            self.model().config.decoder_start.or(bos).unwrap_or(0)
        });
        let options = CoreOptions {
            scheduler,
            n_ctx: self.n_ctx(),
            n_blocks: options.n_blocks(),
            windows: self.windows(),
            n_host_blocks,
            n_states: self.n_states(),
            n_host_states,
            block_size: options.block_size(),
            decoder_start,
        };
        EngineCore::new(self, tokenizer, options)
    }

    /// The windows whose caches have blocks of their own, each with how many.
    fn windows(&self) -> Vec<(usize, usize)> {
        let windows = self.options.windows(self.model().spec()).into_iter();
        windows.map(|(window, n_blocks)| (window as usize, n_blocks)).collect()
    }

    /// Slots of recurrent states; 0 of a model without them.
    fn n_states(&self) -> usize {
        if self.model().spec().is_recurrent() { self.options.n_states() } else { 0 }
    }

    /// Threads that a step may use.
    pub(crate) fn max_threads(&self) -> usize {
        match self.options.n_threads {
            0 => usize::MAX,
            n => n,
        }
    }

    /// What it was made for.
    pub fn options(&self) -> &EngineOptions {
        &self.options
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.deployment.model
    }

    /// Lets all later steps watch this token.
    pub fn set_cancel_token(&mut self, cancel: CancelToken) {
        self.deployment.executor.set_cancel_token(cancel.clone());
        self.cancel = cancel;
    }

    /// Warnings that were not taken yet: memory that could not be locked, devices that failed.
    pub fn warnings(&self) -> &[String] {
        &self.deployment.warnings
    }

    /// The warnings since they were taken last.
    pub fn take_warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.deployment.warnings)
    }

    /// Adds a warning.
    pub(crate) fn warn(&mut self, warning: String) {
        self.deployment.warnings.push(warning);
    }

    /// Where the last step's graph ran.
    pub fn report(&self) -> Option<&Report> {
        let Deployment { executor, programs, last, .. } = &self.deployment;
        executor.report(&programs.get(last.as_ref()?)?.program).ok()
    }

    /// Bytes of logits that the last step read back.
    pub fn n_bytes_read(&self) -> u64 {
        self.n_bytes_read
    }

    /// Bytes allocated besides the weights: KV cache, and compute memory by device.
    pub fn allocated(&self) -> (u64, Vec<u64>) {
        self.deployment.executor.allocated()
    }

    /// Bytes of pinned host memory by device, on the way of inputs and results.
    pub fn staged(&self) -> Vec<u64> {
        self.deployment.executor.staged()
    }

    /// Scratch memory by device, of those where the host manages it.
    pub fn pool_stats(&self) -> Vec<(String, PoolStats)> {
        self.deployment.executor.pool_stats()
    }

    /// The devices' memory of caches, to be read and written between steps.
    pub(crate) fn executor(&mut self) -> &mut Executor {
        &mut self.deployment.executor
    }

    /// The same, to be read.
    pub(crate) fn executor_ref(&self) -> &Executor {
        &self.deployment.executor
    }

    /// Deploys the model again if a cancelled recovery has left it without memory.
    pub(crate) fn ensure_deployed(&mut self) -> Result<()> {
        if self.needs_deployment { self.deploy() } else { Ok(()) }
    }

    /// Goes on without the device that failed with `e`; its caches are lost, and all others. Where weights alone are lost, they are
    /// loaded again. Returns `e` if nothing is lost, or strict placement forbids it. What the caches held is not computed any more even if this fails.
    pub(crate) fn leave_out(&mut self, e: Error, caches_lost: impl FnOnce()) -> Result<()> {
        let is_allowed = !self.options.strict && !e.is_cancelled();
        let Deployment { devices, executor, warnings, .. } = &mut self.deployment;
        let Some(d) = lost(devices, &e).filter(|_| is_allowed) else {
            if !self.needs_deployment || e.is_cancelled() {
                return Err(e);
            }
            caches_lost();
            return self.deploy();
        };
        let name = devices.remove(d).name().to_string();
        warnings.push(format!(
            "{name} is not used any more: {e}; going on without it, and what its memory held is computed again"
        ));
        executor.clear();
        self.needs_deployment = true;
        caches_lost();
        self.deploy()
    }

    /// Loads the model onto the devices that are left, unless that is cancelled.
    fn deploy(&mut self) -> Result<()> {
        let cancel = self.cancel.clone();
        let mut goes_on = |_| !cancel.is_cancelled();
        let load =
            LoadOptions { mode: self.load_mode, progress: Some(&mut goes_on), ..LoadOptions::default() };
        let devices = self.deployment.devices.clone();
        let deployment = Deployment::new(devices, &self.files, load, &self.options);
        let mut deployment = deployment.map_err(|e| if e.is_cancelled() { Error::Cancelled } else { e })?;
        deployment.warnings.splice(0..0, self.take_warnings());
        self.deployment = deployment;
        self.needs_deployment = false;
        self.deployment.executor.set_cancel_token(self.cancel.clone());
        Ok(())
    }
}
