//! Running groups get blocks and tokens.

use super::{Limit, Refusal, ScheduledChunk, Scheduler, StepPlan, release};
use crate::error::{Error, Result};

impl Scheduler {
    /// Gives every running group blocks for its known tokens, in order. Where there are too few, the last group is preempted;
    /// one that is alone and has no room ends.
    pub(super) fn reserve_running(&mut self, plan: &mut StepPlan) -> Result<()> {
        while self.device.blocks.n_used() > self.device.blocks.n_usable() && !self.running.is_empty() {
            self.preempt_last(plan)?;
        }
        let mut i = 0;
        while i < self.running.len() {
            let n_lacking = self.running[i].n_lacking(&self.device);
            if n_lacking <= self.device.blocks.n_free() {
                self.reserve(i, plan)?;
                i += 1;
            } else if self.running.len() > 1 {
                self.preempt_last(plan)?;
            } else if let Some(group) = self.running.pop_back() {
                let (needed, available) = (group.distinct().len() + n_lacking, self.device.blocks.n_usable());
                plan.refused.push(Refusal { request: group.id, limit: Limit::Blocks, needed, available });
                release(group, &mut self.device)?;
            }
        }
        Ok(())
    }

    /// A token for every sequence that lacks one.
    pub(super) fn run_decodes(&self, plan: &mut StepPlan) {
        (0..self.running.len()).for_each(|i| self.run_lacking(i, plan, |n_missing| n_missing == 1));
    }

    /// The next chunks of sequences that lack more.
    pub(super) fn run_prefills(&self, plan: &mut StepPlan) {
        (0..self.running.len()).for_each(|i| self.run_lacking(i, plan, |n_missing| n_missing > 1));
    }

    /// What a group that has just got its blocks can compute in this step.
    pub(super) fn run_group(&self, i: usize, plan: &mut StepPlan) {
        self.run_lacking(i, plan, |n_missing| n_missing > 0);
    }

    /// Chunks of those sequences of a group that lack a number of tokens as `is_lacking` has it. In lockstep the last token
    /// of all is computed in one step.
    fn run_lacking(&self, i: usize, plan: &mut StepPlan, is_lacking: impl Fn(usize) -> bool) {
        let group = &self.running[i];
        let waits = group.lockstep && !group.is_level();
        let n_lacking = group.sequences.iter().filter(|seq| seq.n_missing() == 1).count();
        let max = self.config.max_num_batched_tokens;
        if group.lockstep && !waits && plan.n_left(max) < n_lacking {
            return;
        }
        for seq in group.sequences.iter().filter(|seq| is_lacking(seq.n_missing())) {
            let has_blocks = !seq.blocks().ids().is_empty();
            let n_missing = seq.n_missing() + seq.drafts().len() - usize::from(waits);
            // The encoder's part of a step is as large as the largest decoder's.
            let is_read = plan.n_to_encode + seq.n_to_encode() <= self.max_new;
            let n_new = if has_blocks && is_read { n_missing.min(plan.n_left(max)) } else { 0 };
            let n_new =
                n_new.min(group.n_within(seq, self.config.max_num_prompt_logits - plan.n_prompt_logits));
            if n_new > 0 {
                plan.n_to_encode += seq.n_to_encode();
                plan.n_prompt_logits += group.n_prompt_logits(seq, n_new);
                plan.chunks.push(ScheduledChunk { id: seq.id, n_new });
            }
        }
    }

    /// Gives the ready sequences of a running group the blocks that they need, which are free.
    pub(super) fn reserve(&mut self, i: usize, plan: &mut StepPlan) -> Result<()> {
        let (group, pools) = (&mut self.running[i], &mut self.device);
        // Which are ready is decided before any has more: as the group's need was counted.
        let is_due = |i: &usize| group.sequences[*i].n_missing() > 0 && group.is_ready(*i);
        let due: Vec<usize> = (0..group.sequences.len()).filter(is_due).collect();
        for i in due {
            let (before, rest) = group.sequences.split_at_mut(i);
            let seq = &mut rest[0];
            if seq.blocks().ids().is_empty() {
                seq.share_common(before, pools)?;
            }
            seq.copy_on_write(pools, &mut plan.block_copies)?;
            if !seq.grow(self.max_new, pools) {
                return Err(Error::OutOfBlocks { id: seq.id });
            }
        }
        Ok(())
    }
}
