//! Runs sequences through a model: the pure scheduler picks the next chunks, the executor computes.

use crate::batch::{Batch, Logits, OutputRow};
use crate::deployment::Deployment;
use crate::device_topk::TopKRequest;
use crate::error::{Error, Result};
use crate::kv::pool::BlockPool;
use crate::memory;
use crate::program::{Results, StepProgram, StepShape, bytes_of, floats, inputs, words};
use crate::sampler::{Candidate, Row};
use crate::schedule::{Budget, schedule};
use crate::sequence::{Sequence, SequenceId, TokenId};
use llmrt_abi::DType;
use llmrt_graph::{Graph, Kind, Tensor};
use llmrt_host::load::{LoadMode, LoadOptions, ModelFiles};
use llmrt_host::sched::SplitMode;
use llmrt_host::sched::executor::{Executor, Program};
use llmrt_host::sched::report::Report;
use llmrt_host::{CancelToken, Device, Host, PoolStats};
use llmrt_models::{BatchShape, Model};
use std::collections::HashMap;
use std::sync::Arc;

/// Tokens in a block of the KV cache.
pub const BLOCK_SIZE: usize = 16;

/// The sizes that the engine is made for.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// Tokens that a sequence may reach.
    pub n_ctx: usize,
    /// Most tokens in one step.
    pub n_batch: usize,
    /// Sequences that may be at full length at the same time.
    pub max_seqs: usize,
    /// Element type of the K cache.
    pub k_type: DType,
    /// Element type of the V cache.
    pub v_type: DType,
    /// Threads of the CPU pool to use; 0: all.
    pub n_threads: usize,
    /// Fail instead of letting nodes run elsewhere than on the first device.
    pub strict: bool,
    /// How several devices share the model.
    pub split: SplitMode,
    /// From so many bytes on, a step's logits stay on a device with memory of its own where the largest of each row
    /// decide ([`Engine::set_required_top_k`]), and only these are read back; `u64::MAX`: never.
    pub keep_logits_from: u64,
    /// Keep blocks of ended sequences, and use them for sequences that begin with the same tokens.
    pub prefix_cache: bool,
}

/// One sequence of 4096 tokens, prompts in chunks of 512, a KV cache of F16, all threads; nodes may run on any device,
/// all logits are read back, and blocks are used again.
impl Default for EngineOptions {
    fn default() -> EngineOptions {
        EngineOptions {
            n_ctx: 4096,
            n_batch: 512,
            max_seqs: 1,
            k_type: DType::F16,
            v_type: DType::F16,
            n_threads: 0,
            strict: false,
            split: SplitMode::default(),
            keep_logits_from: u64::MAX,
            prefix_cache: true,
        }
    }
}

impl EngineOptions {
    /// Blocks one sequence may have.
    pub(crate) fn max_blocks(&self) -> usize {
        self.n_ctx.div_ceil(BLOCK_SIZE).max(1)
    }

    /// Blocks of the pool.
    pub(crate) fn n_blocks(&self) -> usize {
        self.max_blocks().saturating_mul(self.max_seqs.max(1))
    }

    /// The shape of a step.
    pub(crate) fn shape(&self, n_tokens: usize, n_seqs: usize, n_outputs: usize) -> BatchShape {
        BatchShape {
            n_tokens: n_tokens as u64,
            n_seqs: n_seqs as u64,
            n_outputs: n_outputs.max(1) as u64,
            max_blocks: self.max_blocks() as u64,
            n_blocks: self.n_blocks() as u64,
            block_size: BLOCK_SIZE as u64,
            k_type: self.k_type,
            v_type: self.v_type,
        }
    }
}

/// A loaded model with its sequences.
pub struct Engine {
    /// The devices' threads and services live as long.
    _host: Arc<Host>,
    model: Model,
    pub(crate) options: EngineOptions,
    /// For going on without a device that fails.
    pub(crate) files: Arc<ModelFiles>,
    pub(crate) load_mode: LoadMode,
    pub(crate) devices: Vec<Arc<Device>>,
    /// Set when the executor's memory is gone: it must be made again on `devices` before the next step.
    pub(crate) needs_deployment: bool,
    pub(crate) cancel: CancelToken,
    pub(crate) executor: Executor,
    pub(crate) pool: BlockPool,
    pub(crate) queue: Vec<Sequence>,
    programs: HashMap<StepShape, StepProgram>,
    last: Option<StepShape>,
    n_bytes_read: u64,
    next_id: u64,
    pub(crate) warnings: Vec<String>,
}

/// What a step gave.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Step {
    /// Whose logits each row is.
    pub rows: Vec<OutputRow>,
    /// `[n_whole, n_vocab]`: the rows that were read whole, one after the other. All of them, unless [`Step::largest`]
    /// names rows that were not.
    pub logits: Vec<f32>,
    /// By row, the largest logits where they decide what is sampled, largest first; empty for rows that were read whole.
    /// Without any rows, all were.
    pub largest: Vec<Vec<Candidate>>,
    /// Tokens that went through the model.
    pub n_tokens: usize,
    /// Sequences the pool can never hold; they were given up.
    pub too_long: Vec<SequenceId>,
}

impl Step {
    /// What the sampler picks the token after row `i` from.
    pub fn row(&self, i: usize) -> Row<'_> {
        let is_whole = |row: usize| self.largest.get(row).is_none_or(Vec::is_empty);
        if !is_whole(i) {
            return Row::Largest(&self.largest[i]);
        }
        let n_whole = (0..self.rows.len()).filter(|&row| is_whole(row)).count();
        let before = (0..i).filter(|&row| is_whole(row)).count();
        let n_vocab = self.logits.len() / n_whole.max(1);
        Row::All(self.logits.get(before * n_vocab..(before + 1) * n_vocab).unwrap_or_default())
    }
}

/// Gets an op's result: name, dims, values. What it fails with ends the visit.
pub type VisitOp<'a> = dyn FnMut(&str, [u64; 4], &[f32]) -> std::io::Result<()> + 'a;

/// Most step graphs kept.
const MAX_PROGRAMS: usize = 64;

impl Engine {
    /// Places the model on `devices` (first choice first, the CPU baseline last), loads its weights there, and
    /// allocates the KV cache and the compute memory of the largest step. A device that fails is left out with a
    /// warning, now and in any later step, unless placement is strict.
    pub fn new(
        host: &Arc<Host>,
        devices: Vec<Arc<Device>>,
        files: ModelFiles,
        load: LoadOptions<'_>,
        options: EngineOptions,
    ) -> Result<Engine> {
        let (files, load_mode) = (Arc::new(files), load.mode);
        let Deployment { model, devices, executor, programs, last, warnings } =
            Deployment::new(devices, &files, load, &options)?;
        let pool = BlockPool::new(options.n_blocks(), BLOCK_SIZE)?;
        Ok(Engine {
            _host: host.clone(),
            model,
            options,
            files,
            load_mode,
            devices,
            needs_deployment: false,
            cancel: CancelToken::new(),
            executor,
            pool,
            queue: Vec::new(),
            programs,
            last,
            n_bytes_read: 0,
            next_id: 0,
            warnings,
        })
    }

    /// Takes over what another deployment computes with.
    pub(crate) fn adopt(&mut self, deployment: Deployment) {
        let Deployment { model, devices, executor, programs, last, warnings } = deployment;
        self.warnings.extend(warnings);
        (self.model, self.devices, self.executor) = (model, devices, executor);
        (self.programs, self.last) = (programs, last);
        self.needs_deployment = false;
        self.executor.set_cancel_token(self.cancel.clone());
    }

    /// Lets all later steps watch this token. While it is set, [`Engine::step`] ends as soon as its devices notice,
    /// with [`Error::Cancelled`]: sequences keep their tokens, and what the step had computed is computed again by the
    /// next one. To go on, [`CancelToken::reset`] it.
    pub fn set_cancel_token(&mut self, cancel: CancelToken) {
        self.executor.set_cancel_token(cancel.clone());
        self.cancel = cancel;
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Warnings that were not taken yet: memory that could not be locked, devices that failed.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The warnings since they were taken last.
    pub fn take_warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }

    /// Tokens that a sequence may reach.
    pub fn n_ctx(&self) -> usize {
        self.options.n_ctx
    }

    /// Queues a sequence that starts with these tokens.
    pub fn add(&mut self, tokens: Vec<TokenId>) -> Result<SequenceId> {
        let id = SequenceId(self.next_id);
        self.check_tokens(&tokens)?;
        self.check_length(id, tokens.len())?;
        self.queue.push(Sequence::new(id, tokens)?);
        self.next_id += 1;
        Ok(id)
    }

    /// Appends a sampled token.
    pub fn push(&mut self, id: SequenceId, token: TokenId) -> Result<()> {
        self.check_tokens(&[token])?;
        let n_tokens = self.find(id)?.tokens().len() + 1;
        self.check_length(id, n_tokens)?;
        self.find(id)?.push(token);
        Ok(())
    }

    /// Appends tokens that count as prompt: the next turn of a chat.
    pub fn push_prompt(&mut self, id: SequenceId, tokens: &[TokenId]) -> Result<()> {
        self.check_tokens(tokens)?;
        let n_tokens = self.find(id)?.tokens().len() + tokens.len();
        self.check_length(id, n_tokens)?;
        self.find(id)?.push_prompt(tokens);
        Ok(())
    }

    /// Sets how many of the largest logits its sampler needs ([`crate::Sampler::required_top_k`]); `None`, the default: all
    /// of them.
    pub fn set_required_top_k(&mut self, id: SequenceId, n: Option<usize>) -> Result<()> {
        self.find(id)?.required_top_k = n;
        Ok(())
    }

    /// Forgets all tokens of a sequence after the first `n_kept`.
    pub fn truncate(&mut self, id: SequenceId, n_kept: usize) -> Result<()> {
        let i = self.position(id)?;
        self.queue[i].truncate(n_kept, &mut self.pool)
    }

    /// Ends a sequence and gives its blocks back.
    pub fn remove(&mut self, id: SequenceId) -> Result<()> {
        let i = self.position(id)?;
        self.queue[i].release(&mut self.pool)?;
        self.queue.remove(i);
        Ok(())
    }

    /// A queued sequence.
    pub fn sequence(&self, id: SequenceId) -> Option<&Sequence> {
        self.queue.iter().find(|s| s.id == id)
    }

    /// One step of at most `max_tokens` tokens (and at most the batch size): the oldest sequences that lack tokens.
    /// A step that fails can be repeated: no sequence counts its tokens as computed.
    pub fn step(&mut self, logits: Logits, max_tokens: usize) -> Result<Step> {
        self.ensure_deployed()?;
        let prefix_cache = self.options.prefix_cache && logits == Logits::Last;
        let budget = Budget { prefix_cache, ..Budget::tokens(max_tokens.min(self.options.n_batch).max(1)) };
        let plan = schedule(&mut self.queue, &mut self.pool, budget)?;
        self.n_bytes_read = 0;
        if plan.is_empty() {
            return Ok(Step { too_long: self.end(plan.too_long)?, ..Step::default() });
        }
        let batch = Batch::new(&plan, &self.queue, &self.pool, self.options.max_blocks(), logits)?;
        let request = match logits {
            Logits::All => TopKRequest::default(),
            Logits::Last => self.request(&batch),
        };
        let Results { logits, largest, n_bytes } = self.forward_or_recover(&batch, &request)?;
        self.n_bytes_read = n_bytes;
        for chunk in &plan.chunks {
            let i = self.position(chunk.id)?;
            self.advance(i, chunk.n_new)?;
        }
        let too_long = self.end(plan.too_long)?;
        Ok(Step { rows: batch.rows.clone(), logits, largest, n_tokens: batch.n_tokens(), too_long })
    }

    /// Counts `n_new` more tokens of a sequence as computed.
    pub(crate) fn advance(&mut self, i: usize, n_new: usize) -> Result<()> {
        self.queue[i].advance(n_new);
        if self.options.prefix_cache { self.queue[i].name_blocks(&mut self.pool) } else { Ok(()) }
    }

    /// Ends sequences that never fit into the pool.
    fn end(&mut self, too_long: Vec<SequenceId>) -> Result<Vec<SequenceId>> {
        too_long.iter().try_for_each(|&id| self.remove(id))?;
        Ok(too_long)
    }

    /// Where the last step's graph ran.
    pub fn report(&self) -> Option<&Report> {
        self.executor.report(&self.programs.get(&self.last?)?.program).ok()
    }

    /// Bytes of logits that the last step read back.
    pub fn n_bytes_read(&self) -> u64 {
        self.n_bytes_read
    }

    /// Bytes allocated besides the weights: KV cache, and compute memory by device.
    pub fn allocated(&self) -> (u64, Vec<u64>) {
        self.executor.allocated()
    }

    /// Scratch memory by device, of those where the host manages it.
    pub fn pool_stats(&self) -> Vec<(String, PoolStats)> {
        self.executor.pool_stats()
    }

    /// Runs `tokens` as one step of a fresh sequence and shows every op's result: name, dims, and values as f32.
    pub fn per_op(&mut self, tokens: &[TokenId], visit: &mut VisitOp<'_>) -> Result<std::io::Result<()>> {
        let id = self.add(tokens.to_vec())?;
        let outcome = self.visit_ops(tokens.len(), visit);
        self.remove(id)?;
        outcome
    }

    fn visit_ops(&mut self, n_tokens: usize, visit: &mut VisitOp<'_>) -> Result<std::io::Result<()>> {
        self.ensure_deployed()?;
        let plan = schedule(&mut self.queue, &mut self.pool, Budget::tokens(n_tokens))?;
        let batch = Batch::new(&plan, &self.queue, &self.pool, self.options.max_blocks(), Logits::All)?;
        let shape = self.options.shape(batch.n_tokens(), batch.n_seqs(), batch.n_outputs());
        let step = self.model.graph(&shape)?;
        let (graph, results) = memory::every_result_kept(step.graph);
        let program = Program::new(graph);
        self.executor.run(&program, &inputs(&step.inputs, &bytes_of(&batch)))?;
        for t in results {
            let def = program.graph().def(t);
            let bytes = self.executor.output(&program, t)?;
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

    /// What the samplers of a batch's rows need.
    fn request(&self, batch: &Batch) -> TopKRequest {
        let needs = batch.rows.iter().map(|row| self.sequence(row.id)?.required_top_k).collect();
        TopKRequest::new(needs, self.model.config.n_vocab, self.options.keep_logits_from)
    }

    /// The requested logits of a batch; none when it has no outputs.
    pub(crate) fn forward(&mut self, batch: &Batch, request: &TopKRequest) -> Result<Results> {
        let shape = self.options.shape(batch.n_tokens(), batch.n_seqs(), batch.n_outputs());
        let shape = StepShape { batch: shape, n_picked: request.n_picked };
        self.ensure(shape)?;
        let step = &self.programs[&shape];
        if let Err(e) = step.run(&mut self.executor, batch) {
            // Picking takes memory that the logits alone do not.
            if !(step.picks() && e.is_out_of_device_memory()) {
                return Err(e);
            }
            self.programs.insert(shape, StepProgram::new(&self.model, &shape.without_picking())?);
            return self.forward(batch, request);
        }
        self.last = Some(shape);
        match batch.n_outputs() {
            0 => Ok(Results::default()),
            _ => step.read(&self.executor, request),
        }
    }

    /// Makes the graph of a shape, if there is none yet: without picking, where that is not done beside the logits.
    fn ensure(&mut self, shape: StepShape) -> Result<()> {
        if !self.programs.contains_key(&shape) {
            if self.programs.len() >= MAX_PROGRAMS {
                self.programs.clear();
            }
            self.programs.insert(shape, StepProgram::new(&self.model, &shape)?);
        }
        if !self.programs[&shape].uses_device_topk(&self.executor)? {
            self.programs.insert(shape, StepProgram::new(&self.model, &shape.without_picking())?);
        }
        Ok(())
    }

    pub(crate) fn position(&self, id: SequenceId) -> Result<usize> {
        self.queue.iter().position(|s| s.id == id).ok_or(Error::UnknownSequence { id })
    }

    fn find(&mut self, id: SequenceId) -> Result<&mut Sequence> {
        let i = self.position(id)?;
        Ok(&mut self.queue[i])
    }

    fn check_length(&self, id: SequenceId, n_tokens: usize) -> Result<()> {
        let n_ctx = self.options.n_ctx;
        if n_tokens > n_ctx { Err(Error::ContextFull { id, n_tokens, n_ctx }) } else { Ok(()) }
    }

    fn check_tokens(&self, tokens: &[TokenId]) -> Result<()> {
        let n_vocab = self.model.config.n_vocab;
        match tokens.iter().find(|&&t| u64::from(t) >= n_vocab) {
            Some(&token) => Err(Error::TokenOutOfVocab { token, n_vocab }),
            None => Ok(()),
        }
    }
}

/// Whether a result can be shown: it has bytes of its own, as numbers of four bytes.
pub(crate) fn is_showable(g: &Graph, t: Tensor) -> bool {
    let def = g.def(t);
    def.kind == Kind::Computed && def.view.is_none() && matches!(def.dtype, DType::F32 | DType::I32)
}
