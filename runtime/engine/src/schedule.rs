//! Decides which sequences run in the next step. Pure: no device, no clock, no I/O.
//!
//! One rule, computed tokens catch up with known tokens, covers a prompt (many tokens missing), a long prompt in
//! chunks (more missing than the budget has) and generation (one missing). The queue is in order of arrival.

use crate::error::Result;
use crate::kv::pool::BlockPool;
use crate::scheduler::ScheduledChunk;
use crate::sequence::{Sequence, SequenceId};

/// Gives every sequence the tokens it still lacks, oldest first, until the budget is spent.
///
/// A sequence runs only with blocks for all its known tokens, so a prompt once begun never waits for memory half way.
/// When blocks run out the youngest sequence that has any gives all of its up and starts over later; when there is
/// none, the younger ones wait too, so no sequence starves.
pub fn schedule(queue: &mut [Sequence], pool: &mut BlockPool, budget: Budget) -> Result<StepPlan> {
    let mut plan = StepPlan::default();
    let mut younger = queue;
    while let Some((seq, rest)) = younger.split_first_mut() {
        younger = rest;
        if seq.finish.is_some() || seq.n_missing() == 0 {
            continue;
        }
        if pool.blocks_for(seq.tokens().len()) > pool.n_blocks() {
            plan.too_long.push(seq.id);
            continue;
        }
        let n_left = budget.n_tokens - plan.n_tokens();
        if n_left == 0 || plan.chunks.len() == budget.n_seqs {
            break;
        }
        if budget.prefix_cache {
            seq.reuse_prefix(pool);
        }
        if !reserve(seq, younger, pool, &mut plan)? {
            break;
        }
        seq.count_cached();
        let n_new = seq.n_missing().min(n_left);
        plan.chunks.push(ScheduledChunk { id: seq.id, n_new });
    }
    Ok(plan)
}

/// Takes blocks for all known tokens of `seq`, from the pool or else from the youngest of `younger`.
fn reserve(
    seq: &mut Sequence,
    younger: &mut [Sequence],
    pool: &mut BlockPool,
    plan: &mut StepPlan,
) -> Result<bool> {
    while !seq.blocks.grow(seq.tokens().len(), pool) {
        let Some(victim) = younger.iter_mut().rfind(|other| !other.blocks.ids().is_empty()) else {
            return Ok(false);
        };
        victim.release(pool)?;
        plan.preempted.push(victim.id);
    }
    Ok(true)
}

/// The most that one step may do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Budget {
    /// Tokens in one step; at least 1, or nothing ever runs.
    pub n_tokens: usize,
    /// Sequences in one step; at least 1.
    pub n_seqs: usize,
    /// Whether blocks that earlier sequences computed are used again: not where logits of all tokens are required.
    pub prefix_cache: bool,
}

impl Budget {
    /// `n_tokens` tokens, of any number of sequences, all of them computed.
    pub fn tokens(n_tokens: usize) -> Self {
        Self { n_tokens, n_seqs: usize::MAX, prefix_cache: false }
    }
}

/// The chunks of the next step.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct StepPlan {
    /// The sequences that run, oldest first.
    pub chunks: Vec<ScheduledChunk>,
    /// Sequences whose blocks went to older ones. They stay in the queue and start over when there is room.
    pub preempted: Vec<SequenceId>,
    /// Sequences that the whole pool could not hold: they never run again, end them.
    pub too_long: Vec<SequenceId>,
}

impl StepPlan {
    /// Tokens of all sequences together.
    pub fn n_tokens(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.n_new).sum()
    }

    /// Whether the step has nothing to compute.
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }
}

#[cfg(test)]
mod tests;
