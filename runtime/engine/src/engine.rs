//! Runs sequences through a model: the pure scheduler says who is next, the executor computes.

use crate::assembly::Assembly;
use crate::batch::{Batch, Logits, OutputRow};
use crate::blocks::BlockPool;
use crate::error::{Error, Result};
use crate::memory;
use crate::schedule::{Budget, schedule};
use crate::sequence::{Sequence, SequenceId, TokenId};
use llmrt_abi::DType;
use llmrt_graph::{Graph, Kind, Tensor};
use llmrt_host::load::{LoadMode, LoadOptions, ModelFiles};
use llmrt_host::sched::SplitMode;
use llmrt_host::sched::executor::{Executor, Program};
use llmrt_host::sched::report::Report;
use llmrt_host::{Device, Host, PoolStats};
use llmrt_models::{BatchShape, Inputs, Model};
use std::collections::HashMap;
use std::sync::Arc;

/// Tokens in a block of the KV cache.
pub const BLOCK_SIZE: usize = 16;

/// How much the engine is made for.
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
    pub(crate) executor: Executor,
    pub(crate) pool: BlockPool,
    pub(crate) queue: Vec<Sequence>,
    programs: HashMap<BatchShape, StepProgram>,
    last: Option<BatchShape>,
    next_id: u64,
    pub(crate) warnings: Vec<String>,
}

/// The graph of one batch shape.
pub(crate) struct StepProgram {
    pub program: Program,
    pub inputs: Inputs,
    pub logits: Tensor,
}

/// What a step gave.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Step {
    /// Whose logits each row is.
    pub rows: Vec<OutputRow>,
    /// `[n_rows, n_vocab]`, rows one after the other.
    pub logits: Vec<f32>,
    /// Tokens that went through the model.
    pub n_tokens: usize,
    /// Sequences the pool can never hold; they were given up.
    pub too_long: Vec<SequenceId>,
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
        let Assembly { model, devices, executor, programs, last, warnings } =
            Assembly::new(devices, &files, load, &options)?;
        let pool = BlockPool::new(options.n_blocks(), BLOCK_SIZE)?;
        Ok(Engine {
            _host: host.clone(),
            model,
            options,
            files,
            load_mode,
            devices,
            executor,
            pool,
            queue: Vec::new(),
            programs,
            last,
            next_id: 0,
            warnings,
        })
    }

    /// Takes over what another assembly computes with.
    pub(crate) fn adopt(&mut self, assembly: Assembly) {
        let Assembly { model, devices, executor, programs, last, warnings } = assembly;
        self.warnings.extend(warnings);
        (self.model, self.devices, self.executor) = (model, devices, executor);
        (self.programs, self.last) = (programs, last);
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// What went less well than asked, and was not taken yet: memory that could not be locked, devices that failed.
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
    pub fn step(&mut self, logits: Logits, max_tokens: usize) -> Result<Step> {
        let budget = Budget::tokens(max_tokens.min(self.options.n_batch).max(1));
        let plan = schedule(&mut self.queue, &mut self.pool, budget)?;
        for id in &plan.too_long {
            self.remove(*id)?;
        }
        let too_long = plan.too_long.clone();
        if plan.is_empty() {
            return Ok(Step { too_long, ..Step::default() });
        }
        let batch = Batch::new(&plan, &self.queue, &self.pool, self.options.max_blocks(), logits)?;
        let logits = self.forward_or_recover(&batch)?;
        for share in &plan.shares {
            self.find(share.id)?.advance(share.n_new);
        }
        Ok(Step { rows: batch.rows.clone(), logits, n_tokens: batch.n_tokens(), too_long })
    }

    /// Where the last step's graph ran.
    pub fn report(&self) -> Option<&Report> {
        self.executor.report(&self.programs.get(&self.last?)?.program).ok()
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
        let plan = schedule(&mut self.queue, &mut self.pool, Budget::tokens(n_tokens))?;
        let batch = Batch::new(&plan, &self.queue, &self.pool, self.options.max_blocks(), Logits::All)?;
        let shape = self.options.shape(batch.n_tokens(), batch.n_seqs(), batch.n_outputs());
        let step = self.model.graph(&shape)?;
        let (graph, results) = memory::every_result_kept(step.graph);
        let program = Program::new(graph);
        self.executor.run(&program, &inputs(&step.inputs, &bytes_of(&batch)))?;
        for t in results {
            let def = program.graph().def(t);
            let mut bytes = vec![0; def.n_bytes() as usize];
            self.executor.read(&program, t, &mut bytes)?;
            let values: Vec<f32> = match def.dtype {
                DType::I32 => words(&bytes).map(|w| i32::from_ne_bytes(w) as f32).collect(),
                _ => words(&bytes).map(f32::from_ne_bytes).collect(),
            };
            if let Err(e) = visit(&def.name, def.ne, &values) {
                return Ok(Err(e));
            }
        }
        Ok(Ok(()))
    }

    /// Logits of a batch, `[n_outputs, n_vocab]`; empty when it wants none.
    pub(crate) fn forward(&mut self, batch: &Batch) -> Result<Vec<f32>> {
        let shape = self.options.shape(batch.n_tokens(), batch.n_seqs(), batch.n_outputs());
        self.ensure(shape)?;
        let step = &self.programs[&shape];
        self.executor.run(&step.program, &inputs(&step.inputs, &bytes_of(batch)))?;
        self.last = Some(shape);
        if batch.n_outputs() == 0 {
            return Ok(Vec::new());
        }
        let mut bytes = vec![0; step.program.graph().def(step.logits).n_bytes() as usize];
        self.executor.read(&step.program, step.logits, &mut bytes)?;
        Ok(words(&bytes).map(f32::from_ne_bytes).collect())
    }

    /// Makes the graph of a shape, if there is none yet.
    fn ensure(&mut self, shape: BatchShape) -> Result<()> {
        if !self.programs.contains_key(&shape) {
            if self.programs.len() >= MAX_PROGRAMS {
                self.programs.clear();
            }
            self.programs.insert(shape, StepProgram::new(&self.model, &shape)?);
        }
        Ok(())
    }

    fn position(&self, id: SequenceId) -> Result<usize> {
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

/// The arrays of a batch as bytes, in the order of [`inputs`].
fn bytes_of(batch: &Batch) -> [Vec<u8>; 7] {
    let bytes = |ints: &[i32]| ints.iter().flat_map(|i| i.to_ne_bytes()).collect::<Vec<u8>>();
    let output_ids = if batch.output_ids.is_empty() { &[0][..] } else { &batch.output_ids };
    [
        bytes(&batch.tokens),
        bytes(&batch.positions),
        bytes(&batch.slots),
        bytes(&batch.block_table),
        bytes(&batch.seq_lens),
        bytes(&batch.query_starts),
        bytes(output_ids),
    ]
}

fn inputs<'a>(inputs: &Inputs, bytes: &'a [Vec<u8>; 7]) -> Vec<(Tensor, &'a [u8])> {
    let tensors = [
        inputs.tokens,
        inputs.positions,
        inputs.slots,
        inputs.block_table,
        inputs.seq_lens,
        inputs.query_starts,
        inputs.output_ids,
    ];
    tensors.into_iter().zip(bytes.iter().map(Vec::as_slice)).collect()
}

fn words(bytes: &[u8]) -> impl Iterator<Item = [u8; 4]> + '_ {
    bytes.chunks_exact(4).map(|c| [c[0], c[1], c[2], c[3]])
}

/// Whether a result can be shown: it has bytes of its own, as numbers of four bytes.
pub(crate) fn is_showable(g: &Graph, t: Tensor) -> bool {
    let def = g.def(t);
    def.kind == Kind::Computed && def.view.is_none() && matches!(def.dtype, DType::F32 | DType::I32)
}
