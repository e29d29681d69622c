//! Runs sequences through a model: the pure scheduler picks the next chunks, the executor computes.

use crate::batch::{Batch, Logits, OutputRow};
use crate::device_topk::TopKRequest;
use crate::error::{Error, Result};
use crate::kv::pool::BlockPool;
use crate::kv::slots::StateSlots;
use crate::options::{BLOCK_SIZE, EngineOptions};
use crate::program::Results;
use crate::runner::{DeviceRunner, VisitOp};
use crate::sampler::{Candidate, Row};
use crate::schedule::{Budget, StepPlan, schedule};
use crate::sequence::{Sequence, SequenceId, TokenId};
use llmrt_host::load::{LoadOptions, ModelFiles};
use llmrt_host::sched::report::Report;
use llmrt_host::{CancelToken, Device, Host, PoolStats};
use llmrt_models::Model;
use std::sync::Arc;

/// A loaded model with its sequences.
pub struct Engine {
    pub(crate) runner: DeviceRunner,
    pub(crate) pool: BlockPool,
    pub(crate) queue: Vec<Sequence>,
    pub(crate) state_slots: StateSlots,
    next_id: u64,
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
        Engine::over(DeviceRunner::new(host, devices, files, load, options)?)
    }

    /// Sequences over a loaded model.
    pub fn over(runner: DeviceRunner) -> Result<Engine> {
        let pool = BlockPool::new(runner.options.n_blocks(), BLOCK_SIZE)?;
        let state_slots =
            StateSlots::new(runner.model().spec().is_recurrent(), runner.options.max_seqs.max(1));
        Ok(Engine { runner, pool, queue: Vec::new(), state_slots, next_id: 0 })
    }

    /// Lets all later steps watch this token. While it is set, [`Engine::step`] ends as soon as its devices notice,
    /// with [`Error::Cancelled`]: sequences keep their tokens, and what the step had computed is computed again by the
    /// next one. To go on, [`CancelToken::reset`] it.
    pub fn set_cancel_token(&mut self, cancel: CancelToken) {
        self.runner.set_cancel_token(cancel);
    }

    /// What computes.
    pub fn runner(&self) -> &DeviceRunner {
        &self.runner
    }

    /// The model.
    pub fn model(&self) -> &Model {
        self.runner.model()
    }

    /// Warnings that were not taken yet: memory that could not be locked, devices that failed.
    pub fn warnings(&self) -> &[String] {
        self.runner.warnings()
    }

    /// The warnings since they were taken last.
    pub fn take_warnings(&mut self) -> Vec<String> {
        self.runner.take_warnings()
    }

    /// Tokens that a sequence may reach.
    pub fn n_ctx(&self) -> usize {
        self.runner.options.n_ctx
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
        self.runner.ensure_deployed()?;
        let prefix_cache = self.has_prefix_cache() && logits == Logits::Last;
        let budget = Budget::tokens(max_tokens.min(self.runner.options.n_batch).max(1));
        let budget = Budget { prefix_cache, n_seqs: self.max_seqs_in_step(), ..budget };
        self.state_slots.restart_truncated(&mut self.queue);
        let mut plan = schedule(&mut self.queue, &mut self.pool, budget)?;
        self.state_slots.assign(&mut plan.chunks, &mut self.queue);
        self.runner.n_bytes_read = 0;
        if plan.is_empty() {
            return Ok(Step { too_long: self.end(plan.too_long)?, ..Step::default() });
        }
        let mut batch = self.batch(&plan, logits)?;
        let request = match logits {
            Logits::All => TopKRequest::default(),
            Logits::Last => self.request(&batch),
        };
        let Results { logits, largest } = self.forward_or_recover(&mut batch, &request)?;
        for chunk in &plan.chunks {
            let i = self.position(chunk.id)?;
            self.advance(i, chunk.n_new)?;
        }
        let too_long = self.end(plan.too_long)?;
        Ok(Step { rows: batch.rows.clone(), logits, largest, n_tokens: batch.n_tokens(), too_long })
    }

    /// The arrays of a step whose sequences have slots of their states.
    pub(crate) fn batch(&self, plan: &StepPlan, logits: Logits) -> Result<Batch> {
        let max_blocks = self.runner.options.max_blocks();
        let mut batch = Batch::new(plan, &self.queue, &self.pool, max_blocks, logits)?;
        self.state_slots.fill(&mut batch);
        Ok(batch)
    }

    /// Whether blocks of other sequences are used again: not where sequences have states besides.
    fn has_prefix_cache(&self) -> bool {
        self.runner.options.prefix_cache && !self.model().spec().is_recurrent()
    }

    /// Recurrent states limit how many sequences a step has.
    fn max_seqs_in_step(&self) -> usize {
        if self.model().spec().is_recurrent() { self.runner.options.max_seqs.max(1) } else { usize::MAX }
    }

    /// Counts `n_new` more tokens of a sequence as computed.
    pub(crate) fn advance(&mut self, i: usize, n_new: usize) -> Result<()> {
        let seq = &mut self.queue[i];
        seq.advance(n_new);
        self.state_slots.commit(seq.id, seq.n_computed());
        if self.has_prefix_cache() { self.queue[i].name_blocks(&mut self.pool) } else { Ok(()) }
    }

    /// Ends sequences that never fit into the pool.
    fn end(&mut self, too_long: Vec<SequenceId>) -> Result<Vec<SequenceId>> {
        too_long.iter().try_for_each(|&id| self.remove(id))?;
        Ok(too_long)
    }

    /// Where the last step's graph ran.
    pub fn report(&self) -> Option<&Report> {
        self.runner.report()
    }

    /// Bytes of logits that the last step read back.
    pub fn n_bytes_read(&self) -> u64 {
        self.runner.n_bytes_read
    }

    /// Bytes allocated besides the weights: KV cache, and compute memory by device.
    pub fn allocated(&self) -> (u64, Vec<u64>) {
        self.runner.allocated()
    }

    /// Scratch memory by device, of those where the host manages it.
    pub fn pool_stats(&self) -> Vec<(String, PoolStats)> {
        self.runner.pool_stats()
    }

    /// Runs `tokens` as one step of a fresh sequence and shows every op's result: name, dims, and values as f32.
    pub fn per_op(&mut self, tokens: &[TokenId], visit: &mut VisitOp<'_>) -> Result<std::io::Result<()>> {
        let id = self.add(tokens.to_vec())?;
        let outcome = self.visit_ops(tokens.len(), visit);
        self.remove(id)?;
        outcome
    }

    fn visit_ops(&mut self, n_tokens: usize, visit: &mut VisitOp<'_>) -> Result<std::io::Result<()>> {
        self.runner.ensure_deployed()?;
        let mut plan = schedule(&mut self.queue, &mut self.pool, Budget::tokens(n_tokens))?;
        self.state_slots.assign(&mut plan.chunks, &mut self.queue);
        let batch = self.batch(&plan, Logits::All)?;
        self.runner.visit_ops(&batch, visit)
    }

    /// What the samplers of a batch's rows need.
    fn request(&self, batch: &Batch) -> TopKRequest {
        self.runner
            .top_k_request(batch.rows.iter().map(|row| self.sequence(row.id)?.required_top_k).collect())
    }

    pub(crate) fn position(&self, id: SequenceId) -> Result<usize> {
        self.queue.iter().position(|s| s.id == id).ok_or(Error::UnknownSequence { id })
    }

    fn find(&mut self, id: SequenceId) -> Result<&mut Sequence> {
        let i = self.position(id)?;
        Ok(&mut self.queue[i])
    }

    fn check_length(&self, id: SequenceId, n_tokens: usize) -> Result<()> {
        let n_ctx = self.runner.options.n_ctx;
        if n_tokens > n_ctx { Err(Error::ContextFull { id, n_tokens, n_ctx }) } else { Ok(()) }
    }

    fn check_tokens(&self, tokens: &[TokenId]) -> Result<()> {
        let n_vocab = self.runner.model().config.n_vocab;
        match tokens.iter().find(|&&t| u64::from(t) >= n_vocab) {
            Some(&token) => Err(Error::TokenOutOfVocab { token, n_vocab }),
            None => Ok(()),
        }
    }
}
