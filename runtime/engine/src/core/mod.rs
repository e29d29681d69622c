//! Requests to events: the scheduler plans a step, a [`Runner`] executes it, and each request picks its tokens from the
//! logits. One generation loop for every program.

mod active;
mod drafts;
mod event;
mod pick;
mod runner;
#[cfg(test)]
mod tests;

pub use event::{EngineEvent, KvUse, PromptLogprob, RequestOutput, Usage};
pub use runner::{Abilities, Rows, Runner, StepInputs};

use crate::batch::Batch;
use crate::error::{Error, Result};
use crate::kv::pools::CachePools;
use crate::options::BLOCK_SIZE;
use crate::request::{Decoding, Request, RequestId};
use crate::scheduler::{NewGroup, Outcome, ScheduledChunk, Scheduler, SchedulerConfig, StepPlan};
use crate::sequence::{Sequence, SequenceId, TokenId};
use crate::speculation::{DraftUse, Speculation};
use crate::stop::Finish;
use active::{Active, Known, Vocabulary};
use llmrt_models::StepOutput;
use llmrt_tokenizer::Tokenizer;
use pick::{Pick, pick_all};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The sizes of a core.
#[derive(Clone, PartialEq, Debug)]
pub struct CoreOptions {
    /// Budgets and rules.
    pub scheduler: SchedulerConfig,
    /// Tokens that a sequence may reach.
    pub n_ctx: usize,
    /// Blocks of the KV cache.
    pub n_blocks: usize,
    /// The windows of layers whose caches have blocks of their own, in tokens, and how many blocks: those that all sequences of
    /// a step hold, or `n_blocks`.
    pub windows: Vec<(usize, usize)>,
    /// Blocks of host memory for swapping.
    pub n_host_blocks: usize,
    /// Slots of recurrent states: two for each sequence of a step; 0 for models without such states.
    pub n_states: usize,
    /// Slots of recurrent states in host memory, for swapping.
    pub n_host_states: usize,
    /// Tokens in a block.
    pub block_size: usize,
    /// The token that a decoder starts with whose encoder reads the prompt; `None` for models without an encoder.
    pub decoder_start: Option<TokenId>,
}

/// One sequence of 4096 tokens, and no host memory.
impl Default for CoreOptions {
    fn default() -> CoreOptions {
        CoreOptions {
            scheduler: SchedulerConfig::default(),
            n_ctx: 4096,
            n_blocks: 4096 / BLOCK_SIZE,
            windows: Vec::new(),
            n_host_blocks: 0,
            n_states: 0,
            n_host_states: 0,
            block_size: BLOCK_SIZE,
            decoder_start: None,
        }
    }
}

/// Requests, and what computes them.
pub struct EngineCore<R> {
    runner: R,
    scheduler: Scheduler,
    vocabulary: Vocabulary,
    n_ctx: usize,
    decoder_start: Option<TokenId>,
    requests: BTreeMap<RequestId, Active>,
    next_id: u64,
    abilities: Abilities,
    /// Events of steps that failed afterwards.
    pending: Vec<EngineEvent>,
    kv_use: KvUse,
    speculation: Option<Speculation<R>>,
}

impl<R: Runner> EngineCore<R> {
    /// No request yet. Without a tokenizer there are tokens and no text.
    pub fn new(runner: R, tokenizer: Option<Arc<Tokenizer>>, options: CoreOptions) -> Result<EngineCore<R>> {
        let CoreOptions { n_ctx, block_size, decoder_start, .. } = options;
        let n_host_blocks = options.n_host_blocks;
        let host_windows = options.windows.iter().map(|(window, _)| (*window, n_host_blocks));
        let host = CachePools::new(n_host_blocks, options.n_host_states, block_size)?;
        let host = host.with_windows(host_windows)?;
        let device = CachePools::new(options.n_blocks, options.n_states, block_size)?;
        let device = device.with_windows(options.windows)?;
        let abilities = runner.abilities();
        let config = SchedulerConfig { is_causal: abilities.is_causal, ..options.scheduler };
        let scheduler = Scheduler::new(config, device, host)?;
        let vocabulary = Vocabulary { tokenizer, n_tokens: runner.n_vocab() };
        Ok(EngineCore {
            runner,
            scheduler,
            vocabulary,
            n_ctx,
            decoder_start,
            requests: BTreeMap::new(),
            next_id: 0,
            abilities,
            pending: Vec::new(),
            kv_use: KvUse::default(),
            speculation: None,
        })
    }

    /// Queues a request. One whose prompt does not fit the context, or that names tokens which do not exist, is refused.
    pub fn add(&mut self, request: Request) -> Result<RequestId> {
        let id = RequestId(self.next_id);
        let request = self.for_encoder(request);
        request.check()?;
        self.check_output(&request)?;
        self.vocabulary.check(&request)?;
        let group = NewGroup::new(id, &request);
        self.check_length(id, group.prompt.len().max(request.encoder_tokens.len()))?;
        let active = Active::new(request, self.n_ctx, &self.vocabulary, self.abilities.is_causal)?;
        let group = NewGroup { reuses_prefix: active.logits_from().is_none(), ..group };
        self.scheduler.add(&group)?;
        self.requests.insert(id, active);
        self.next_id += 1;
        Ok(id)
    }

    /// With the prompt as the encoder's text, in a model that has an encoder, unless the request has both.
    fn for_encoder(&self, request: Request) -> Request {
        match self.decoder_start {
            Some(start) if request.encoder_tokens.is_empty() && !request.prompt.is_empty() => {
                Request { encoder_tokens: request.prompt.into(), prompt: vec![start], ..request }
            }
            _ => request,
        }
    }

    /// Refuses requests for text where the model generates none.
    pub fn check_generates(&self) -> Result<()> {
        match self.abilities {
            Abilities { has_logits: false, .. } => Err(Error::NoText),
            Abilities { is_causal: false, .. } => Err(Error::NotCausal),
            Abilities { output: StepOutput::Logits, .. } => Ok(()),
            Abilities { output, .. } => Err(Error::NotLoaded { found: name(output), needed: "logits" }),
        }
    }

    fn check_output(&self, request: &Request) -> Result<()> {
        if request.is_of_text() {
            return self.check_generates();
        }
        if self.has_encoder() && matches!(request.decoding, Decoding::Embed { .. }) {
            return Err(Error::NoVectors);
        }
        let (found, needed) = (self.abilities.output, request.output());
        let needs_more = match needed {
            StepOutput::Embeddings => false,
            // Of a model without logits hidden states are given in their place.
            StepOutput::Logits => self.abilities.has_logits && found != needed,
            StepOutput::Scores | StepOutput::Drafts => found != needed,
        };
        match needs_more {
            true => Err(Error::NotLoaded { found: name(found), needed: name(needed) }),
            false => Ok(()),
        }
    }

    fn check_length(&self, id: RequestId, n_tokens: usize) -> Result<()> {
        let n_ctx = self.n_ctx;
        if n_tokens > n_ctx { Err(Error::PromptTooLong { id, n_tokens, n_ctx }) } else { Ok(()) }
    }

    /// Puts other tokens in the place of all those of a request with one text, which goes on after them: a context shift, when
    /// [`EngineEvent::ContextFull`] was given. What they have in common with cached prefixes is not computed again.
    pub fn replace(&mut self, id: RequestId, tokens: &[TokenId]) -> Result<()> {
        self.check_length(id, tokens.len())?;
        self.vocabulary.check_tokens(tokens)?;
        self.scheduler.replace(id, tokens)
    }

    /// Computes at most so many tokens in a step from now on.
    pub fn set_max_num_batched_tokens(&mut self, n_tokens: usize) -> Result<()> {
        self.scheduler.set_max_num_batched_tokens(n_tokens)
    }

    /// Whether an encoder reads prompts.
    pub fn has_encoder(&self) -> bool {
        self.decoder_start.is_some()
    }

    /// Ends a request early, with what it has generated.
    pub fn abort(&mut self, id: RequestId) -> Result<RequestOutput> {
        let usage = self.usage(id);
        let mut active = self.requests.remove(&id).ok_or(Error::UnknownRequest { id })?;
        self.scheduler.abort(id)?;
        let prompt_logprobs = active.take_prompt_logprobs();
        let (outputs, embeddings) = (active.cancel(), Vec::new());
        Ok(RequestOutput { request: id, outputs, usage, prompt_logprobs, embeddings })
    }

    /// Whether all requests have ended.
    pub fn is_idle(&self) -> bool {
        self.scheduler.is_empty()
    }

    /// Prompt tokens of a request: all, and those whose keys and values are in the cache.
    pub fn progress(&self, id: RequestId) -> Option<(usize, usize)> {
        let group = self.scheduler.group(id)?;
        let first = group.sequences.first()?;
        Some((first.n_prompt(), first.n_computed().min(first.n_prompt())))
    }

    /// The queues and blocks.
    pub fn scheduler(&self) -> &Scheduler {
        &self.scheduler
    }

    /// How far the KV cache was used.
    pub fn kv_use(&self) -> KvUse {
        self.kv_use
    }

    /// What computes.
    pub fn runner(&self) -> &R {
        &self.runner
    }

    /// What computed, without the requests.
    pub fn into_runner(self) -> R {
        self.runner
    }

    /// The scheduler and what computes.
    pub(crate) fn parts(&mut self) -> (&mut Scheduler, &mut R) {
        (&mut self.scheduler, &mut self.runner)
    }

    /// The same, to change.
    pub fn runner_mut(&mut self) -> &mut R {
        &mut self.runner
    }

    /// Tokens that a sequence may reach.
    pub fn n_ctx(&self) -> usize {
        self.n_ctx
    }

    /// Computes a step, and returns what happened to requests. A step that fails can be repeated: no token is lost.
    pub fn step(&mut self) -> Result<Vec<EngineEvent>> {
        if let Some(cost) = self.runner.preemption_cost() {
            self.scheduler.set_preemption_cost(cost);
        }
        if self.runner.has_lost_memory() {
            self.scheduler.lose_caches()?;
            self.runner.prepare()?;
        }
        self.draft()?;
        let plan = self.scheduler.schedule()?;
        self.count_use(&plan);
        let refused = self.refuse(&plan);
        self.pending.extend(refused);
        match self.compute(&plan) {
            Ok(picked) => {
                let mut events = std::mem::take(&mut self.pending);
                self.complete(picked, &mut events)?;
                Ok(events)
            }
            Err(e) => {
                self.recover(&plan, e)?;
                Ok(std::mem::take(&mut self.pending))
            }
        }
    }

    /// Executes a plan, and lets every request with results pick its tokens. Text comes last: what is picked of it counts, so
    /// nothing may fail afterwards, while vectors are taken again if the step is repeated.
    fn compute(&mut self, plan: &StepPlan) -> Result<Picked> {
        self.runner.prepare()?;
        self.runner.move_blocks(plan)?;
        let mut picked = Picked::default();
        for output in [StepOutput::Scores, StepOutput::Embeddings, StepOutput::Logits] {
            let chunks = self.chunks_of(plan, output);
            if !chunks.is_empty() {
                let batch = self.forward(&chunks, output)?;
                self.pick(&batch, &mut picked)?;
            }
        }
        Ok(picked)
    }

    /// The chunks of requests for this.
    fn chunks_of(&self, plan: &StepPlan, output: StepOutput) -> Vec<ScheduledChunk> {
        let running = by_sequence(&self.scheduler);
        let of = |chunk: &ScheduledChunk| {
            let active = running.get(&chunk.id).and_then(|(request, _)| self.requests.get(request));
            active.map_or(StepOutput::Logits, |active| active.request.output())
        };
        plan.chunks.iter().filter(|chunk| of(chunk) == output).copied().collect()
    }

    /// Computes chunks.
    fn forward(&mut self, chunks: &[ScheduledChunk], output: StepOutput) -> Result<Batch> {
        let running = by_sequence(&self.scheduler);
        let find = |id: SequenceId| {
            let (request, seq) = running.get(&id)?;
            Some((*seq, self.requests.get(request).and_then(Active::logits_from)))
        };
        let pools = self.scheduler.device();
        let max_blocks = pools.blocks.blocks_for(self.n_ctx).max(1);
        let batch = Batch::new(chunks, find, pools, max_blocks)?;
        let needs =
            batch.rows.iter().map(|row| self.requests.get(&running.get(&row.id)?.0)?.required_top_k());
        let needs: Vec<Option<usize>> = needs.collect();
        self.runner.forward(&StepInputs { batch: &batch, output, needs })?;
        Ok(batch)
    }

    /// Lets every request with results in a batch pick its tokens.
    fn pick(&mut self, batch: &Batch, picked: &mut Picked) -> Result<()> {
        let rows = self.runner.rows()?;
        let running = by_sequence(&self.scheduler);
        let mut by_request: BTreeMap<RequestId, Vec<usize>> = BTreeMap::new();
        for (i, row) in batch.rows.iter().enumerate() {
            let owner = running.get(&row.id).map(|(request, _)| *request);
            owner.into_iter().for_each(|id| by_request.entry(id).or_default().push(i));
        }
        let picks = self.requests.iter_mut().filter_map(|(id, active)| {
            let given = by_request.get(id)?.iter().map(|&i| (batch.rows[i], rows.row(i))).collect();
            Some(Pick::new(*id, active, given))
        });
        let known = |id: SequenceId| {
            let Some((_, seq)) = running.get(&id) else { return Known::default() };
            Known { tokens: seq.tokens(), drafts: seq.drafts() }
        };
        for pick in pick_all(picks.collect(), &self.runner, &known, &self.vocabulary) {
            picked.events.extend(pick.events);
            picked.drafted.add(std::mem::take(&mut pick.active.drafted));
            match pick.next {
                Ok(Some(next)) => {
                    if pick.active.is_done() {
                        picked.ended.push((pick.id, None));
                    }
                    picked.outcomes.push(Outcome { request: pick.id, next });
                }
                // The prompt is not complete.
                Ok(None) => {}
                Err(e) => picked.ended.push((pick.id, Some(e))),
            }
        }
        Ok(())
    }

    /// Goes on from a step with what was picked.
    fn complete(&mut self, picked: Picked, events: &mut Vec<EngineEvent>) -> Result<()> {
        let Picked { outcomes, ended, drafted, events: of_picks } = picked;
        self.speculation.iter_mut().for_each(|speculation| speculation.used.add(drafted));
        events.extend(of_picks);
        let failed: Vec<RequestId> =
            ended.iter().filter(|(_, error)| error.is_some()).map(|(id, _)| *id).collect();
        for (id, error) in ended {
            self.end(id, error, events);
        }
        let continued = self.scheduler.complete(&outcomes)?;
        // All their sequences end, those too that were not in this step.
        failed.into_iter().try_for_each(|id| self.scheduler.abort(id))?;
        for (outcome, ids) in outcomes.iter().zip(continued) {
            self.requests.get_mut(&outcome.request).into_iter().for_each(|active| active.rename(&ids));
        }
        Ok(())
    }

    /// The last event of a request.
    fn end(&mut self, id: RequestId, error: Option<Error>, events: &mut Vec<EngineEvent>) {
        let usage = self.usage(id);
        let usage = Usage { n_computed: usage.n_prompt, ..usage };
        let Some(mut active) = self.requests.remove(&id) else { return };
        let prompt_logprobs = active.take_prompt_logprobs();
        events.push(match error {
            Some(error) => EngineEvent::Failed { request: id, error },
            None => {
                let embeddings = active.take_embeddings();
                let outputs = active.complete();
                EngineEvent::Finished(RequestOutput {
                    request: id,
                    outputs,
                    usage,
                    prompt_logprobs,
                    embeddings,
                })
            }
        });
    }

    fn usage(&self, id: RequestId) -> Usage {
        let n_generated = self.requests.get(&id).map_or(0, Active::n_generated);
        let group = self.scheduler.group(id);
        let n_prompt = self.requests.get(&id).map_or(0, |active| active.request.n_prompt());
        let first = group.and_then(|g| g.sequences.first());
        let n_cached = first.map_or(0, |seq| seq.n_cached().min(n_prompt));
        let n_computed = first.map_or(n_prompt, |seq| seq.n_computed().min(n_prompt));
        let n_preemptions = self.requests.get(&id).map_or(0, |active| active.n_preemptions);
        Usage { n_prompt, n_computed, n_cached, n_generated, n_preemptions }
    }

    /// A request that gets its blocks back in the same step is preempted too.
    fn count_use(&mut self, plan: &StepPlan) {
        self.kv_use.max_blocks = self.kv_use.max_blocks.max(self.scheduler.pool().n_used());
        self.kv_use.n_preemptions += plan.preempted.len();
        for (id, _) in &plan.preempted {
            self.requests.get_mut(id).into_iter().for_each(|active| active.n_preemptions += 1);
        }
    }

    /// Requests that can never run (again) end: with their text, if they have any.
    fn refuse(&mut self, plan: &StepPlan) -> Vec<EngineEvent> {
        let mut events = Vec::new();
        for refusal in &plan.refused {
            let Some(mut active) = self.requests.remove(&refusal.request) else { continue };
            let request = refusal.request;
            let n_preemptions = active.n_preemptions;
            let usage = Usage { n_prompt: active.request.n_prompt(), n_preemptions, ..Usage::default() };
            events.push(match active.n_generated() {
                0 => EngineEvent::Failed { request, error: Error::NeverFits(*refusal) },
                n_generated => EngineEvent::Finished(RequestOutput {
                    request,
                    usage: Usage { n_generated, ..usage },
                    prompt_logprobs: active.take_prompt_logprobs(),
                    embeddings: Vec::new(),
                    outputs: active.end_all(&Finish::Length),
                }),
            });
        }
        events
    }

    /// Goes on after a step that failed: without the device that is lost, whose caches are computed again, or with the error.
    fn recover(&mut self, plan: &StepPlan, e: Error) -> Result<()> {
        self.scheduler.fail()?;
        let moves = !(plan.swap_in.is_empty() && plan.swap_out.is_empty() && plan.block_copies.is_empty());
        let mut is_lost = false;
        // A step with guesses may be larger than those that memory was planned for.
        let is_too_large = e.is_out_of_device_memory() && !self.runner.has_lost_memory();
        let is_smaller = is_too_large && (self.end_drafts(&e.to_string()) || self.shrink_steps(plan, &e));
        let outcome = match is_smaller {
            // What moved may not have arrived.
            true => {
                is_lost = moves;
                Ok(())
            }
            false => self.runner.recover(e, &mut || is_lost = true),
        };
        let scheduler = &mut self.scheduler;
        if is_lost || (moves && outcome.is_err()) {
            scheduler.lose_caches()?;
        }
        // Moves to or from host memory may not have happened.
        if moves && (is_lost || outcome.is_err()) {
            scheduler.lose_host_blocks()?;
        }
        outcome
    }

    /// After a step for which a device has too little memory: steps have half as many tokens from now on. `false` if they
    /// cannot have fewer.
    fn shrink_steps(&mut self, plan: &StepPlan, e: &Error) -> bool {
        let n_tokens = plan.n_tokens() / 2;
        let is_shrunk = self.scheduler.set_max_num_batched_tokens(n_tokens).is_ok();
        if is_shrunk {
            self.runner.warn(format!(
                "a step of {} tokens is too large: {e}; steps have {n_tokens} from now on",
                plan.n_tokens()
            ));
        }
        is_shrunk
    }
}

/// What the requests of a step have picked.
#[derive(Default)]
struct Picked {
    outcomes: Vec<Outcome>,
    /// Requests that end, with the error if there was one.
    ended: Vec<(RequestId, Option<Error>)>,
    drafted: DraftUse,
    events: Vec<EngineEvent>,
}

/// What a step gives, in words.
fn name(output: StepOutput) -> &'static str {
    match output {
        StepOutput::Logits => "logits",
        StepOutput::Embeddings => "vectors",
        StepOutput::Scores => "scores",
        StepOutput::Drafts => "drafts",
    }
}

/// The running sequences by id, each with its request.
fn by_sequence(scheduler: &Scheduler) -> HashMap<SequenceId, (RequestId, &Sequence)> {
    scheduler.running().map(|(request, seq)| (seq.id, (request, seq))).collect()
}
