//! Guesses of next tokens, which a step computes after the known ones (speculative decoding).

use super::{Policy, Scheduler};
use crate::error::{Error, Result};
use crate::sequence::{SequenceId, TokenId};

impl Scheduler {
    /// Lets the next step compute guesses of the next tokens of a sequence that runs, in the place of earlier ones.
    pub fn draft(&mut self, id: SequenceId, drafts: Vec<TokenId>) -> Result<()> {
        if self.in_flight.is_some() {
            return Err(Error::StepInFlight);
        }
        // Beams are compared token by token.
        let groups = self.running.iter_mut().filter(|g| !g.lockstep);
        let seq = groups.flat_map(|g| &mut g.sequences).find(|seq| seq.id == id);
        seq.ok_or(Error::UnknownSequence { id })?.set_drafts(drafts);
        Ok(())
    }

    /// Guesses that the next step has room for, beside what it computes anyway.
    pub fn draft_room(&self) -> usize {
        // A step of prompts has none.
        let is_of_prompts = self.config.policy == Policy::PrefillFirst && !self.waiting.is_empty();
        if is_of_prompts || self.device.blocks.n_free() == 0 { 0 } else { self.n_left_of_known() }
    }

    /// Tokens that the known ones of what runs leave of a step.
    fn n_left_of_known(&self) -> usize {
        let n_known: usize = self.running().map(|(_, seq)| seq.n_missing()).sum();
        self.config.max_num_batched_tokens.saturating_sub(n_known)
    }

    /// Leaves out guesses for which a step has no room beside known tokens: they delay and preempt no text that runs.
    pub(super) fn fit_drafts(&mut self) {
        if self.running().all(|(_, seq)| seq.drafts().is_empty()) {
            return;
        }
        let mut n_left = self.n_left_of_known();
        let n_lacking: usize = self.running.iter().map(|g| g.n_lacking(&self.device)).sum();
        let has_blocks = n_lacking <= self.device.blocks.n_free()
            && self.device.blocks.n_used() <= self.device.blocks.n_usable();
        for seq in self.running.iter_mut().flat_map(|g| &mut g.sequences) {
            let n_kept = if has_blocks { seq.drafts().len().min(n_left) } else { 0 };
            n_left -= n_kept;
            seq.keep_drafts(n_kept);
        }
    }
}
