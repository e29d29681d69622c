//! Guesses of next tokens, before each step.

use super::{EngineCore, Runner};
use crate::error::Result;
use crate::sequence::{SequenceId, TokenId};
use crate::speculation::{DraftInput, DraftUse, Drafter, Speculation};

impl<R: Runner> EngineCore<R> {
    /// Lets `drafter` guess next tokens from now on, at most `max_drafts` of a text in a step.
    /// [`EngineOptions::max_drafts`](crate::EngineOptions::max_drafts) plans the memory of such steps.
    pub fn speculate(&mut self, drafter: Box<dyn Drafter<R>>, max_drafts: usize) {
        self.runner.keep_hidden(true);
        self.speculation =
            Some(Speculation { drafter: Some(drafter), max_drafts, used: DraftUse::default() });
    }

    /// What guesses came to; `None` where nothing ever guessed.
    pub fn draft_use(&self) -> Option<DraftUse> {
        self.speculation.as_ref().map(|speculation| speculation.used)
    }

    /// Gives the next step guesses of the next tokens, if it has room. Where they fail, texts go on without them, with a warning.
    pub(super) fn draft(&mut self) -> Result<()> {
        let mut n_left = self.scheduler.draft_room();
        let Some(Speculation { drafter: Some(drafter), max_drafts, .. }) = &mut self.speculation else {
            return Ok(());
        };
        if n_left == 0 {
            return Ok(());
        }
        let caches = self.scheduler.device();
        let texts = self.scheduler.running().filter_map(|(request, sequence)| {
            // After wrong guesses a recurrent model computes more than one token.
            let is_next = (1..=*max_drafts + 1).contains(&sequence.n_missing());
            let active = self.requests.get(&request).filter(|_| is_next)?;
            let room = active.max_drafts(sequence.id, sequence.tokens().len());
            let max_drafts = room.min(*max_drafts).min(n_left);
            n_left -= max_drafts;
            (max_drafts > 0).then_some(DraftInput { sequence, max_drafts, caches })
        });
        let texts: Vec<DraftInput<'_>> = texts.collect();
        match drafter.draft(&texts, &mut self.runner) {
            Ok(drafts) => {
                let n_vocab = self.vocabulary.n_tokens;
                let checked = |(text, drafts): (&DraftInput<'_>, Vec<TokenId>)| {
                    let known = drafts.into_iter().take_while(|&token| (token as usize) < n_vocab);
                    (text.sequence.id, known.take(text.max_drafts).collect())
                };
                let drafts: Vec<(SequenceId, Vec<TokenId>)> = texts.iter().zip(drafts).map(checked).collect();
                drafts.into_iter().try_for_each(|(id, drafts)| self.scheduler.draft(id, drafts))
            }
            Err(e) if e.is_cancelled() => Err(e),
            Err(e) => {
                self.end_drafts(&e.to_string());
                Ok(())
            }
        }
    }

    /// Texts go on without guesses, for this reason; `false` where nothing guesses.
    pub(super) fn end_drafts(&mut self, reason: &str) -> bool {
        let Some(speculation) = self.speculation.as_mut().filter(|s| s.drafter.is_some()) else {
            return false;
        };
        speculation.drafter = None;
        self.runner.keep_hidden(false);
        self.runner.warn(format!("{reason}; texts go on without drafts of their next tokens"));
        true
    }
}
