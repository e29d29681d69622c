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
        let group = self.running.iter_mut().find(|g| g.sequences.iter().any(|seq| seq.id == id));
        // Beams are compared token by token.
        let group = group.filter(|g| !g.lockstep).ok_or(Error::UnknownSequence { id })?;
        let seq = group.sequences.iter_mut().find(|seq| seq.id == id);
        seq.into_iter().for_each(|seq| seq.set_drafts(drafts.clone()));
        Ok(())
    }

    /// Guesses that the next step has room for, beside what it computes anyway.
    pub fn draft_room(&self) -> usize {
        let sequences = self.running.iter().flat_map(|g| &g.sequences);
        let n_known: usize = sequences.map(|seq| seq.n_missing()).sum();
        // A step of prompts has none.
        let is_of_prompts = self.config.policy == Policy::PrefillFirst && !self.waiting.is_empty();
        let n_left = self.config.max_num_batched_tokens.saturating_sub(n_known);
        if is_of_prompts || self.device.blocks.n_free() == 0 { 0 } else { n_left }
    }

    /// Leaves out guesses for which a step has no room beside known tokens: they delay and preempt no text that runs.
    pub(super) fn fit_drafts(&mut self) {
        let sequences = || self.running.iter().flat_map(|g| &g.sequences);
        if sequences().all(|seq| seq.drafts().is_empty()) {
            return;
        }
        let n_known: usize = sequences().map(|seq| seq.n_missing()).sum();
        let mut n_left = self.config.max_num_batched_tokens.saturating_sub(n_known);
        let n_lacking: usize = self.running.iter().map(|g| g.n_lacking(&self.device)).sum();
        let has_blocks = n_lacking <= self.device.blocks.n_free()
            && self.device.blocks.n_used() <= self.device.blocks.n_usable();
        for seq in self.running.iter_mut().flat_map(|g| &mut g.sequences) {
            let n_kept = if has_blocks { seq.drafts().len().min(n_left) } else { 0 };
            n_left -= n_kept;
            seq.set_drafts(seq.drafts()[..n_kept].to_vec());
        }
    }
}
