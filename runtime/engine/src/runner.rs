//! Executes steps on devices: one program per shape of step, block moves, and what happens when a device fails.

use crate::batch::Batch;
use crate::core::{CoreOptions, EngineCore};
use crate::deployment::{Deployment, lost};
use crate::device_topk::TopKRequest;
use crate::error::{Error, Result};
use crate::kv::pool::BlockId;
use crate::kv::pools::{CacheMoves, CachePools};
use crate::memory;
use crate::options::{BLOCK_SIZE, EngineOptions};
use crate::program::{Results, StepProgram, StepShape, borrowed, floats, inputs, words};
use crate::scheduler::{BlockMove, PreemptionCost, ScheduledChunk, SchedulerConfig};
use crate::sequence::{Sequence, SequenceId, TokenId};
use llmrt_abi::DType;
use llmrt_graph::{Graph, Kind, Tensor};
use llmrt_host::load::{LoadMode, LoadOptions, ModelFiles};
use llmrt_host::sched::executor::{Executor, Program};
use llmrt_host::sched::report::Report;
use llmrt_host::{CancelToken, Device, Host, PoolStats};
use llmrt_models::Model;
use llmrt_tokenizer::Tokenizer;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

/// Gets an op's result: name, dims, values. What it fails with ends the visit.
pub type VisitOp<'a> = dyn FnMut(&str, [u64; 4], &[f32]) -> std::io::Result<()> + 'a;

/// Most step graphs kept.
const MAX_PROGRAMS: usize = 64;

/// A cache of one layer.
pub(crate) struct Cache {
    /// The state's name, such as `blk.0.k_cache`.
    pub name: String,
    /// Whether it holds states of whole sequences, by slot, instead of rows by block.
    pub is_recurrent: bool,
    /// Bytes of a block or slot.
    pub n_bytes: u64,
}

/// A model on its devices.
pub struct DeviceRunner {
    /// The devices' threads and services live as long.
    _host: Arc<Host>,
    pub(crate) options: EngineOptions,
    /// For going on without a device that fails.
    files: Arc<ModelFiles>,
    load_mode: LoadMode,
    deployment: Deployment,
    /// Set when the executor's memory is gone: the model must be deployed again before the next step.
    needs_deployment: bool,
    cancel: CancelToken,
    pub(crate) n_bytes_read: u64,
    /// By cache, the blocks and states that were swapped out.
    host_blocks: HashMap<String, Vec<u8>>,
    timed: Timed,
}

/// Moving means of measured times, in nanoseconds.
#[derive(Clone, Copy, Default)]
struct Timed {
    /// Of a block, or a state, between a device and host memory.
    per_block: Option<f64>,
    /// Of a token of prefill.
    per_token: Option<f64>,
}

/// Fewest tokens of a step that count as prefill.
const PREFILL_TOKENS: usize = 16;

/// A mean that follows the last few values.
fn follow(mean: &mut Option<f64>, since: Instant, n: usize) {
    let value = since.elapsed().as_nanos() as f64 / n as f64;
    *mean = Some(mean.map_or(value, |mean| 0.75 * mean + 0.25 * value));
}

impl DeviceRunner {
    /// Places the model on `devices` (first choice first, the CPU baseline last), loads its weights there, and
    /// allocates the KV cache and the compute memory of the largest step. A device that fails is left out with a
    /// warning, now and in any later step, unless placement is strict.
    pub fn new(
        host: &Arc<Host>,
        devices: Vec<Arc<Device>>,
        files: ModelFiles,
        load: LoadOptions<'_>,
        options: EngineOptions,
    ) -> Result<DeviceRunner> {
        let (files, load_mode) = (Arc::new(files), load.mode);
        let deployment = Deployment::new(devices, &files, load, &options)?;
        Ok(DeviceRunner {
            _host: host.clone(),
            options,
            files,
            load_mode,
            deployment,
            needs_deployment: false,
            cancel: CancelToken::new(),
            n_bytes_read: 0,
            host_blocks: HashMap::new(),
            timed: Timed::default(),
        })
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
            max_num_batched_tokens: options.n_batch.max(max_num_seqs),
            max_num_seqs,
            max_num_prompt_logits: options.max_prompt_logits.max(1),
            // Where every sequence has room for the whole context, nothing is kept free for those that run.
            watermark: if options.has_room_for_all() { 0.0 } else { SchedulerConfig::default().watermark },
            policy: options.policy,
            preemption: options.preemption,
            cost: self.preemption_cost(),
            prefix_cache: options.prefix_cache,
        };
        let options = CoreOptions {
            scheduler,
            n_ctx: options.n_ctx,
            n_blocks: options.n_blocks(),
            n_host_blocks,
            n_states: if self.model().spec().is_recurrent() { options.n_states() } else { 0 },
            n_host_states,
            block_size: BLOCK_SIZE,
        };
        EngineCore::new(self, tokenizer, options)
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

    /// What is picked of the rows of a batch whose samplers need so many of the largest logits; `None`: all of them.
    pub(crate) fn top_k_request(&self, needs: Vec<Option<usize>>) -> TopKRequest {
        TopKRequest::new(needs, self.model().config.n_vocab, self.options.keep_logits_from)
    }

    /// The requested logits of a batch; none when it has no outputs.
    pub(crate) fn forward(&mut self, batch: &Batch, request: &TopKRequest) -> Result<Results> {
        let shape = self.options.shape(batch.n_tokens(), batch.n_seqs(), batch.n_outputs());
        let shape = StepShape { batch: shape, n_picked: request.n_picked };
        self.ensure(shape)?;
        let started = Instant::now();
        let Deployment { model, executor, programs, last, .. } = &mut self.deployment;
        let step = &programs[&shape];
        if let Err(e) = step.run(executor, batch) {
            // Picking takes memory that the logits alone do not.
            if !(step.picks() && e.is_out_of_device_memory()) {
                return Err(e);
            }
            programs.insert(shape, StepProgram::new(model, &shape.without_picking())?);
            return self.forward(batch, request);
        }
        *last = Some(shape);
        if batch.n_tokens() >= PREFILL_TOKENS.max(2 * batch.n_seqs()) {
            follow(&mut self.timed.per_token, started, batch.n_tokens());
        }
        if batch.n_outputs() == 0 {
            return Ok(Results::default());
        }
        let (results, n_bytes) = step.read(executor, request)?;
        self.n_bytes_read = n_bytes;
        Ok(results)
    }

    /// Makes the graph of a shape, if there is none yet: without picking, where that is not done beside the logits.
    fn ensure(&mut self, shape: StepShape) -> Result<()> {
        let Deployment { model, executor, programs, .. } = &mut self.deployment;
        if !programs.contains_key(&shape) {
            if programs.len() >= MAX_PROGRAMS {
                programs.clear();
            }
            programs.insert(shape, StepProgram::new(model, &shape)?);
        }
        if !programs[&shape].uses_device_topk(executor)? {
            programs.insert(shape, StepProgram::new(model, &shape.without_picking())?);
        }
        Ok(())
    }

    /// Deploys the model again if a cancelled recovery has left it without memory.
    pub(crate) fn ensure_deployed(&mut self) -> Result<()> {
        if self.needs_deployment { self.deploy() } else { Ok(()) }
    }

    /// Goes on without the device that failed with `e`; its caches are lost, and all others. Returns `e` if no device is
    /// lost, or strict placement forbids it. What the caches held is not computed any more even if this fails.
    pub(crate) fn leave_out(&mut self, e: Error, caches_lost: impl FnOnce()) -> Result<()> {
        let is_allowed = !self.options.strict && !e.is_cancelled();
        let Deployment { devices, executor, warnings, .. } = &mut self.deployment;
        let Some(d) = lost(devices, &e).filter(|_| is_allowed) else { return Err(e) };
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
        let load = LoadOptions { mode: self.load_mode, check_tensors: false, progress: &mut goes_on };
        let devices = self.deployment.devices.clone();
        let deployment = Deployment::new(devices, &self.files, load, &self.options);
        let mut deployment = deployment.map_err(|e| if e.is_cancelled() { Error::Cancelled } else { e })?;
        deployment.warnings.splice(0..0, self.take_warnings());
        self.deployment = deployment;
        self.needs_deployment = false;
        self.deployment.executor.set_cancel_token(self.cancel.clone());
        Ok(())
    }

    /// Copies blocks of the caches one after the other, on their devices.
    pub(crate) fn copy_blocks(&mut self, copies: &[BlockMove]) -> Result<()> {
        for Cache { name, n_bytes, .. } in self.caches().into_iter().filter(|cache| !cache.is_recurrent) {
            for copy in copies {
                let at = |block: BlockId| u64::from(block.0) * n_bytes;
                self.executor().copy_state(&name, at(copy.from), at(copy.to), n_bytes)?;
            }
        }
        Ok(())
    }

    /// Blocks and states that the swap space holds: a state of each sequence first.
    fn swap_space(&self) -> (usize, usize) {
        let bytes = |is_recurrent| {
            let caches = self.caches().into_iter().filter(|cache| cache.is_recurrent == is_recurrent);
            caches.map(|cache| cache.n_bytes).sum::<u64>()
        };
        let space = self.options.swap_space;
        if space == 0 {
            return (0, 0);
        }
        let (block, state) = (bytes(false), bytes(true));
        let n_states = space.checked_div(state).map_or(0, |n| n.min(self.options.max_seqs as u64));
        let n_blocks = (space - n_states * state).checked_div(block);
        let n_blocks = n_blocks.map_or(self.options.n_blocks(), |n| n as usize);
        (n_blocks.min(self.options.n_blocks()), n_states as usize)
    }

    /// Measures how long a block takes to host memory and back. The cache is empty.
    fn time_a_block(&mut self) -> Result<()> {
        let block = BlockMove { from: BlockId(0), to: BlockId(0) };
        let moves = CacheMoves { blocks: vec![block], states: Vec::new() };
        self.swap_out(&moves)?;
        self.swap_in(&moves)
    }

    /// The measured times of swapping and recomputing, once there are both.
    pub(crate) fn preemption_cost(&self) -> Option<PreemptionCost> {
        let (ns_per_block, ns_per_token) = (self.timed.per_block?, self.timed.per_token?);
        Some(PreemptionCost { ns_per_block: ns_per_block as u64, ns_per_token: ns_per_token as u64 })
    }

    /// Copies blocks and states of the caches to host memory.
    pub(crate) fn swap_out(&mut self, moves: &CacheMoves) -> Result<()> {
        self.swap(moves, |executor, cache, moved, host| {
            let at = (u64::from(moved.to.0) * cache.n_bytes) as usize;
            let end = at + cache.n_bytes as usize;
            if host.len() < end {
                host.resize(end, 0);
            }
            executor.read_state(&cache.name, u64::from(moved.from.0) * cache.n_bytes, &mut host[at..end])
        })
    }

    /// Copies blocks and states of host memory to the caches.
    pub(crate) fn swap_in(&mut self, moves: &CacheMoves) -> Result<()> {
        self.swap(moves, |executor, cache, moved, host| {
            let at = (u64::from(moved.from.0) * cache.n_bytes) as usize;
            let part = &host[at..at + cache.n_bytes as usize];
            executor.write_state(&cache.name, u64::from(moved.to.0) * cache.n_bytes, part)
        })
    }

    fn swap(
        &mut self,
        moves: &CacheMoves,
        mut execute: impl FnMut(&mut Executor, &Cache, &BlockMove, &mut Vec<u8>) -> llmrt_host::Result<()>,
    ) -> Result<()> {
        if moves.is_empty() {
            return Ok(());
        }
        let started = Instant::now();
        for cache in self.caches() {
            let host = self.host_blocks.entry(cache.name.clone()).or_default();
            for moved in if cache.is_recurrent { &moves.states } else { &moves.blocks } {
                execute(&mut self.deployment.executor, &cache, moved, host)?;
            }
        }
        follow(&mut self.timed.per_block, started, moves.blocks.len() + moves.states.len());
        Ok(())
    }

    /// The caches, by name.
    pub(crate) fn caches(&self) -> Vec<Cache> {
        let recurrent = self.model().spec().state_names();
        let n_units =
            |is_recurrent| if is_recurrent { self.options.n_states() } else { self.options.n_blocks() };
        let cache = |(name, n): (String, u64)| {
            let is_recurrent = recurrent.contains(&name);
            Cache { name, is_recurrent, n_bytes: n / (n_units(is_recurrent) as u64).max(1) }
        };
        self.deployment.executor.states().into_iter().map(cache).collect()
    }

    /// Computes tokens as one step of a sequence and shows every op's result: name, dims, and values as f32.
    pub fn per_op(&mut self, tokens: &[TokenId], visit: &mut VisitOp<'_>) -> Result<std::io::Result<()>> {
        self.ensure_deployed()?;
        let id = SequenceId(0);
        let n_states = if self.model().spec().is_recurrent() { self.options.n_states() } else { 0 };
        let mut pools = CachePools::new(self.options.n_blocks(), n_states, BLOCK_SIZE)?;
        let mut seq = Sequence::new(id, tokens.to_vec())?;
        if !seq.blocks.grow(tokens.len(), &mut pools.blocks) {
            return Err(Error::OutOfBlocks { id });
        }
        seq.begin_state(&mut pools.states)?;
        let chunk = ScheduledChunk { id, n_new: tokens.len() };
        let batch =
            Batch::new(&[chunk], |_| Some((&seq, Some(0))), &pools.blocks, self.options.max_blocks())?;
        self.visit_ops(&batch, visit)
    }

    /// Computes a batch and shows every op's result, in order of execution.
    fn visit_ops(&mut self, batch: &Batch, visit: &mut VisitOp<'_>) -> Result<std::io::Result<()>> {
        let shape = self.options.shape(batch.n_tokens(), batch.n_seqs(), batch.n_outputs());
        let step = self.model().graph(&shape)?;
        let (graph, results) = memory::every_result_kept(step.graph);
        let program = Program::new(graph);
        let executor = self.executor();
        executor.run(&program, &borrowed(&inputs(&step.inputs, batch)))?;
        for t in results {
            let def = program.graph().def(t);
            let bytes = executor.output(&program, t)?;
            let values: Vec<f32> = match def.dtype {
                DType::I32 => words(&bytes).map(|w| i32::from_ne_bytes(w) as f32).collect(),
                _ => floats(&bytes),
            };
            if let Err(e) = visit(&def.name, def.ne, &values) {
                return Ok(Err(e));
            }
        }
        Ok(Ok(()))
    }
}

/// Whether a result can be shown: it has bytes of its own, as numbers of four bytes.
pub(crate) fn is_showable(g: &Graph, t: Tensor) -> bool {
    let def = g.def(t);
    def.kind == Kind::Computed && def.view.is_none() && matches!(def.dtype, DType::F32 | DType::I32)
}
