//! Guesses of next tokens, before each step.

use super::{EngineCore, Runner};
use crate::error::Result;
use crate::sequence::SequenceId;
use crate::speculation::{DraftInput, DraftUse, Drafter, Speculation};

impl<R: Runner> EngineCore<R> {
    /// Lets `drafter` guess next tokens from now on, at most `max_drafts` of a text in a step.
    pub fn speculate(&mut self, drafter: Box<dyn Drafter<R>>, max_drafts: usize) {
        self.speculation = Some(Speculation { drafter, max_drafts, used: DraftUse::default() });
    }

    /// What guesses came to; `None` where nothing guesses.
    pub fn draft_use(&self) -> Option<DraftUse> {
        self.speculation.as_ref().map(|speculation| speculation.used)
    }

    /// Gives the next step guesses of the next tokens. Where they fail, texts go on without them, with a warning.
    pub(super) fn draft(&mut self) -> Result<()> {
        let Some(Speculation { drafter, max_drafts, .. }) = &mut self.speculation else { return Ok(()) };
        let caches = self.scheduler.device();
        let texts = self.scheduler.running().filter_map(|(request, sequence)| {
            // After wrong guesses a recurrent model computes more than one token.
            let is_next = (1..=*max_drafts + 1).contains(&sequence.n_missing());
            let active = self.requests.get(&request).filter(|_| is_next)?;
            let room = active.max_drafts(sequence.id, sequence.tokens().len());
            let max_drafts = room.min(*max_drafts);
            (max_drafts > 0).then_some(DraftInput { sequence, max_drafts, caches })
        });
        let texts: Vec<DraftInput<'_>> = texts.collect();
        match drafter.draft(&texts, &mut self.runner) {
            Ok(drafts) => {
                let ids: Vec<SequenceId> = texts.iter().map(|text| text.sequence.id).collect();
                ids.into_iter().zip(drafts).try_for_each(|(id, drafts)| self.scheduler.draft(id, drafts))
            }
            Err(e) if e.is_cancelled() => Err(e),
            Err(e) => {
                self.runner.warn(format!("{e}; texts go on without drafts of their next tokens"));
                self.speculation = None;
                Ok(())
            }
        }
    }
}
