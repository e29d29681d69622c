//! Decides what the next step computes. Pure: no device, no clock, no I/O; the state is a function of the events so far
//! ([`Event`]).
//!
//! One rule, computed tokens catch up with known tokens, covers a prompt, a long prompt in chunks, generation, and what was
//! preempted. Three queues as in vLLM: waiting groups have no blocks, running ones have blocks on the device, swapped ones in
//! host memory; each is ordered by priority, then by arrival. Nothing overtakes the head of a queue.

mod admit;
mod complete;
mod config;
mod draft;
mod event;
mod group;
mod plan;
mod preempt;
mod prefix;
mod run;
#[cfg(test)]
mod tests;

pub use complete::{Child, Outcome};
pub use config::{Policy, Preemption, PreemptionCost, SchedulerConfig};
pub use event::{Effect, Event};
pub use group::{Group, NewGroup};
pub use plan::{BlockMove, Limit, PreemptionMode, Refusal, ScheduledChunk, StepPlan};

use crate::error::{Error, Result};
use crate::kv::pool::BlockPool;
use crate::kv::pools::CachePools;
use crate::request::RequestId;
use crate::sequence::{Sequence, SequenceId, TokenId};
use std::collections::VecDeque;

/// The queues, the blocks, and the step in flight.
#[derive(Clone, PartialEq, Debug)]
pub struct Scheduler {
    config: SchedulerConfig,
    /// Tokens of the largest step, which the pools of windows are made for.
    max_new: usize,
    /// Blocks and states on the device.
    device: CachePools,
    /// The same in host memory, for swapping.
    host: CachePools,
    waiting: VecDeque<Group>,
    running: VecDeque<Group>,
    swapped: VecDeque<Group>,
    /// Chunks that are being computed.
    in_flight: Option<Vec<ScheduledChunk>>,
    next_sequence: u64,
    next_arrival: u64,
}

impl Scheduler {
    /// No request; the memory of the device, and that of the host for swapping, of blocks of the same size.
    pub fn new(config: SchedulerConfig, device: CachePools, host: CachePools) -> Result<Self> {
        if config.max_num_seqs == 0 || config.max_num_batched_tokens < config.max_num_seqs {
            let (n_tokens, n_seqs) = (config.max_num_batched_tokens, config.max_num_seqs);
            return Err(Error::BadBudgets { n_tokens, n_seqs });
        }
        Ok(Scheduler {
            config: config.settled(),
            max_new: config.max_num_batched_tokens,
            device,
            host,
            waiting: VecDeque::new(),
            running: VecDeque::new(),
            swapped: VecDeque::new(),
            in_flight: None,
            next_sequence: 0,
            next_arrival: 0,
        })
    }

    /// Queues a request.
    pub fn add(&mut self, new: &NewGroup) -> Result<()> {
        if self.group(new.id).is_some() {
            return Err(Error::DuplicateRequest { id: new.id });
        }
        let sequence = Sequence::new(SequenceId(self.next_sequence), new.prompt.clone())?;
        let sequence = sequence.with_encoder_tokens(new.encoder_tokens.clone());
        let mut group = Group::new(new, sequence.with_root(new.root), self.next_arrival);
        // A prefix has no state of its own, and nothing of what an encoder read.
        group.reuses_prefix &= self.config.prefix_cache && !self.device.is_recurrent();
        group.reuses_prefix &= new.encoder_tokens.is_empty();
        (self.next_sequence, self.next_arrival) = (self.next_sequence + 1, self.next_arrival + 1);
        insert(&mut self.waiting, group);
        Ok(())
    }

    /// Ends a request; one that is in flight, when its step ends.
    pub fn abort(&mut self, id: RequestId) -> Result<()> {
        if let Some(i) = self.running.iter().position(|g| g.id == id) {
            if self.in_flight.is_some() {
                self.running[i].is_aborted = true;
                return Ok(());
            }
            return self.running.remove(i).map_or(Ok(()), |g| self.end(g));
        }
        if let Some(i) = self.waiting.iter().position(|g| g.id == id) {
            return self.waiting.remove(i).map_or(Ok(()), |g| release(g, &mut self.device));
        }
        if let Some(i) = self.swapped.iter().position(|g| g.id == id) {
            return self.swapped.remove(i).map_or(Ok(()), |g| release(g, &mut self.host));
        }
        Err(Error::UnknownRequest { id })
    }

    /// Ends a running group.
    fn end(&mut self, mut group: Group) -> Result<()> {
        let keeps_tail = group.reuses_prefix;
        group.sequences.iter_mut().try_for_each(|seq| end_sequence(seq, keeps_tail, &mut self.device))
    }

    /// Plans the next step. Groups whose tokens are all computed get none until [`Scheduler::complete`] gives them more.
    pub fn schedule(&mut self) -> Result<StepPlan> {
        if self.in_flight.is_some() {
            return Err(Error::StepInFlight);
        }
        let mut plan = StepPlan::default();
        self.fit_drafts();
        match self.config.policy {
            Policy::Chunked => {
                self.reserve_running(&mut plan)?;
                self.run_decodes(&mut plan);
                self.run_prefills(&mut plan);
                self.swap_in(&mut plan)?;
                if self.swapped.is_empty() {
                    self.admit(&mut plan)?;
                }
            }
            Policy::PrefillFirst => {
                if self.swapped.is_empty() {
                    self.admit(&mut plan)?;
                }
                if plan.is_empty() {
                    self.reserve_running(&mut plan)?;
                    self.run_decodes(&mut plan);
                    self.run_prefills(&mut plan);
                    self.swap_in(&mut plan)?;
                }
            }
        }
        self.begin_states(&plan)?;
        self.in_flight = Some(plan.chunks.clone());
        Ok(plan)
    }

    /// Gives every sequence of a step the slot that its next state is written to. There are two for each that may run.
    fn begin_states(&mut self, plan: &StepPlan) -> Result<()> {
        if !self.device.is_recurrent() {
            return Ok(());
        }
        for chunk in &plan.chunks {
            let mut sequences = self.running.iter_mut().flat_map(|g| &mut g.sequences);
            let seq = sequences.find(|seq| seq.id == chunk.id);
            seq.map_or(Ok(()), |seq| seq.begin_state(&mut self.device.states))?;
        }
        Ok(())
    }

    /// Uses `n` blocks less than there are.
    pub fn withhold(&mut self, n: usize) {
        self.device.blocks.withhold(n);
    }

    /// Computes at most so many tokens in a step from now on, and not more than at the start; fewer than there are sequences
    /// delay the last of them.
    pub fn set_max_num_batched_tokens(&mut self, n_tokens: usize) -> Result<()> {
        let lockstep = self.groups().filter(|g| g.lockstep).map(|g| g.width).max().unwrap_or(0);
        let n_seqs = lockstep.max(1);
        if n_tokens < n_seqs {
            return Err(Error::BadBudgets { n_tokens, n_seqs });
        }
        self.config.max_num_batched_tokens = n_tokens.min(self.max_new);
        Ok(())
    }

    /// Decides between swapping and recomputing by these times from now on.
    pub fn set_preemption_cost(&mut self, cost: PreemptionCost) {
        self.config.cost = Some(cost);
    }

    /// Puts other tokens in the place of those of a request with one sequence, which goes on after them. What it has computed
    /// of their beginning stays where it runs.
    pub fn replace(&mut self, id: RequestId, tokens: &[TokenId]) -> Result<()> {
        if self.in_flight.is_some() {
            return Err(Error::StepInFlight);
        }
        let found = self.group(id).ok_or(Error::UnknownRequest { id })?;
        if found.sequences.len() != 1 {
            return Err(Error::TooManySequences { id, found: found.sequences.len(), width: 1 });
        }
        let queues = [&mut self.running, &mut self.swapped, &mut self.waiting];
        let taken = queues.into_iter().enumerate().find_map(|(i, queue)| {
            let at = queue.iter().position(|g| g.id == id)?;
            Some((i, queue.remove(at)?))
        });
        let Some((i, mut group)) = taken else { return Err(Error::UnknownRequest { id }) };
        let pools = if i == 1 { &mut self.host } else { &mut self.device };
        let (sequence, tokens) = (&mut group.sequences[0], tokens.to_vec());
        let n_kept = if i == 0 { sequence.n_kept_of(&tokens, pools) } else { 0 };
        let (outcome, queue) = match n_kept {
            0 => (sequence.replace(tokens, pools), &mut self.waiting),
            _ => (sequence.go_on_after(tokens, n_kept, pools), &mut self.running),
        };
        insert(queue, group);
        outcome
    }

    /// A request, whatever its queue.
    pub fn group(&self, id: RequestId) -> Option<&Group> {
        self.groups().find(|g| g.id == id)
    }

    /// A sequence that runs.
    pub fn sequence(&self, id: SequenceId) -> Option<&Sequence> {
        self.running.iter().flat_map(|g| &g.sequences).find(|seq| seq.id == id)
    }

    /// The sequences that run, each with its request.
    pub fn running(&self) -> impl Iterator<Item = (RequestId, &Sequence)> {
        self.running.iter().flat_map(|g| g.sequences.iter().map(|seq| (g.id, seq)))
    }

    /// All requests: running, swapped, waiting.
    pub fn groups(&self) -> impl Iterator<Item = &Group> {
        self.running.iter().chain(&self.swapped).chain(&self.waiting)
    }

    /// Requests by queue: waiting, running, swapped.
    pub fn counts(&self) -> [usize; 3] {
        [self.waiting.len(), self.running.len(), self.swapped.len()]
    }

    /// Whether there is no request.
    pub fn is_empty(&self) -> bool {
        self.groups().next().is_none()
    }

    /// The blocks on the device.
    pub fn pool(&self) -> &BlockPool {
        &self.device.blocks
    }

    /// The blocks and states on the device.
    pub fn device(&self) -> &CachePools {
        &self.device
    }

    /// The blocks and states in host memory.
    pub fn host(&self) -> &CachePools {
        &self.host
    }

    /// The budgets and rules.
    pub fn config(&self) -> &SchedulerConfig {
        &self.config
    }

    /// Blocks that stay free when a request is admitted.
    fn watermark_blocks(&self) -> usize {
        self.config.watermark_blocks(self.device.blocks.n_blocks())
    }

    /// Sequences that the running groups have or may have.
    fn n_running_seqs(&self) -> usize {
        self.running.iter().map(|g| g.width).sum()
    }
}

/// Puts a group into its place of a queue.
fn insert(queue: &mut VecDeque<Group>, group: Group) -> usize {
    let at = queue.partition_point(|other| other.rank() < group.rank());
    queue.insert(at, group);
    at
}

/// Gives the blocks of a sequence on the device back; with `keeps_tail` its last block, which is not full, can be used again.
fn end_sequence(seq: &mut Sequence, keeps_tail: bool, device: &mut CachePools) -> Result<()> {
    if keeps_tail {
        seq.name_tail(device)?;
    }
    seq.release(device)
}

/// Gives the blocks of a group back.
fn release(mut group: Group, pools: &mut CachePools) -> Result<()> {
    group.sequences.iter_mut().try_for_each(|seq| seq.release(pools))
}
