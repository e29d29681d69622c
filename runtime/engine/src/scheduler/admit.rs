//! Waiting groups start to run.

use super::group::Group;
use super::{Limit, Policy, Refusal, Scheduler, StepPlan, insert};
use crate::error::Result;

impl Scheduler {
    /// Admits waiting groups in order, as long as budgets and blocks last. What can never run ends.
    pub(super) fn admit(&mut self, plan: &mut StepPlan) -> Result<()> {
        while let Some(mut group) = self.waiting.pop_front() {
            let needed = group.n_blocks_from_nothing(&self.device);
            if let Some(refusal) = self.refusal(&group, needed) {
                plan.refused.push(refusal);
                continue;
            }
            if !self.is_in_budget(&group, plan) || !self.take_blocks(&mut group, needed)? {
                self.waiting.push_front(group);
                break;
            }
            group.has_run = true;
            let at = insert(&mut self.running, group);
            self.run_group(at, plan);
        }
        Ok(())
    }

    /// Why a group can never run, if it cannot. One that ran before may use the blocks of the watermark too: it would be lost
    /// otherwise.
    fn refusal(&self, group: &Group, needed: usize) -> Option<Refusal> {
        let reserve = if group.has_run { 0 } else { self.watermark_blocks() };
        let n_tokens = group.sequences.iter().map(|seq| seq.n_prompt()).max().unwrap_or(0);
        let is_whole =
            self.config.policy == Policy::PrefillFirst && !(group.has_run && self.config.is_causal);
        let n_whole = if is_whole { n_tokens } else { 0 };
        let n_level = if group.lockstep { group.width } else { 0 };
        let limits = [
            (Limit::Blocks, needed, self.device.blocks.n_usable().saturating_sub(reserve)),
            (Limit::Sequences, group.width, self.config.max_num_seqs),
            (Limit::BatchedTokens, n_whole.max(n_level), self.config.max_num_batched_tokens),
        ];
        let exceeded = limits.into_iter().find(|(_, needed, available)| needed > available);
        exceeded.map(|(limit, needed, available)| Refusal { request: group.id, limit, needed, available })
    }

    /// Whether a step has tokens and sequences left for a group: whole prompts, where prompts are not chunked.
    fn is_in_budget(&self, group: &Group, plan: &StepPlan) -> bool {
        let n_left = plan.n_left(self.config.max_num_batched_tokens);
        let is_whole = self.config.policy == Policy::Chunked
            || plan.is_empty()
            || group.sequences[0].n_missing() <= n_left;
        n_left > 0 && is_whole && self.n_running_seqs() + group.width <= self.config.max_num_seqs
    }

    /// Gives a group's first sequence blocks for all its tokens, computed ones where there are; none if the whole group has
    /// no room.
    fn take_blocks(&mut self, group: &mut Group, needed: usize) -> Result<bool> {
        let is_alone = self.running.is_empty() && self.swapped.is_empty();
        let reserve = if is_alone { 0 } else { self.watermark_blocks() };
        let first = &mut group.sequences[0];
        if group.reuses_prefix {
            first.reuse_prefix(&mut self.device)?;
        }
        let needed = needed - first.blocks().ids().len();
        let has_room =
            self.device.blocks.n_free() >= needed + reserve && first.grow(self.max_new, &mut self.device);
        if has_room {
            first.count_cached()
        } else {
            first.release(&mut self.device)?
        }
        Ok(has_room)
    }
}
