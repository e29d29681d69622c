//! What follows a step: computed tokens count, sequences go on, fork or end.

use super::{Scheduler, end_sequence};
use crate::error::{Error, Result};
use crate::request::RequestId;
use crate::sequence::{Sequence, SequenceId, TokenId};
use std::collections::HashMap;

/// How a request goes on whose sequences have all their tokens computed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// The request.
    pub request: RequestId,
    /// Its sequences of the next step. One with several children is forked; one without ends. A request without sequences
    /// ends.
    pub next: Vec<Child>,
}

/// A sequence of the next step: one of this step, and a token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Child {
    /// The sequence that it continues.
    pub parent: SequenceId,
    /// Its next token.
    pub token: TokenId,
}

impl Scheduler {
    /// Counts the step in flight as computed, and continues sequences by what was sampled of their logits. A request without
    /// an outcome stays as it is: its sequences lack nothing until a later call gives them tokens. Returns each child's
    /// sequence, by outcome.
    pub fn complete(&mut self, outcomes: &[Outcome]) -> Result<Vec<Vec<SequenceId>>> {
        self.check_outcomes(outcomes)?;
        let computed = self.in_flight.take().unwrap_or_default();
        let computed: HashMap<SequenceId, usize> = computed.iter().map(|c| (c.id, c.n_new)).collect();
        for seq in self.running.iter_mut().flat_map(|g| &mut g.sequences) {
            let Some(n_new) = computed.get(&seq.id) else { continue };
            seq.advance(*n_new);
            seq.commit_state(&mut self.device.states)?;
            if self.config.prefix_cache && !self.device.is_recurrent() {
                seq.name_blocks(&mut self.device)?;
            }
            seq.leave_windows(&mut self.device)?;
        }
        let mut continued = Vec::new();
        for outcome in outcomes {
            continued.push(self.go_on(outcome)?);
        }
        self.end_aborted()?;
        Ok(continued)
    }

    /// Refuses outcomes of requests that do not run, of sequences that lack tokens, and of too many children.
    fn check_outcomes(&self, outcomes: &[Outcome]) -> Result<()> {
        for Outcome { request: id, next } in outcomes {
            let Some(group) = self.running.iter().find(|g| g.id == *id) else {
                return Err(Error::UnknownRequest { id: *id });
            };
            if next.len() > group.width {
                let (found, width) = (next.len(), group.width);
                return Err(Error::TooManySequences { id: *id, found, width });
            }
            for child in next {
                let parent = group.sequences.iter().find(|seq| seq.id == child.parent);
                if parent.is_none_or(|parent| self.n_missing_after_step(parent) != 0) {
                    return Err(Error::UnknownSequence { id: child.parent });
                }
            }
        }
        Ok(())
    }

    /// Tokens that a sequence lacks when the step in flight is computed.
    pub(super) fn n_missing_after_step(&self, seq: &Sequence) -> usize {
        let chunks = self.in_flight.iter().flatten();
        seq.n_missing() - chunks.filter(|chunk| chunk.id == seq.id).map(|chunk| chunk.n_new).sum::<usize>()
    }

    fn go_on(&mut self, outcome: &Outcome) -> Result<Vec<SequenceId>> {
        let Some(at) = self.running.iter().position(|g| g.id == outcome.request) else {
            return Ok(Vec::new());
        };
        let group = &mut self.running[at];
        let (parents, mut sequences): (Vec<_>, Vec<_>) =
            group.sequences.drain(..).partition(|seq| seq.n_missing() == 0);
        let mut parents: Vec<Option<Sequence>> = parents.into_iter().map(Some).collect();
        let mut ids = Vec::new();
        for (i, child) in outcome.next.iter().enumerate() {
            let is_parent = |seq: &Option<Sequence>| seq.as_ref().is_some_and(|seq| seq.id == child.parent);
            let Some(parent) = parents.iter_mut().find(|seq| is_parent(seq)) else { continue };
            // The last child takes the parent's place, and the others share its blocks.
            let is_last = !outcome.next[i + 1..].iter().any(|other| other.parent == child.parent);
            let taken = if is_last { parent.take() } else { None };
            let mut seq = match (taken, parent.as_ref()) {
                (Some(seq), _) => seq,
                (None, Some(seq)) => {
                    self.next_sequence += 1;
                    seq.share(SequenceId(self.next_sequence - 1), &mut self.device)?
                }
                (None, None) => continue,
            };
            seq.push(child.token);
            ids.push(seq.id);
            sequences.push(seq);
        }
        for mut ended in parents.into_iter().flatten() {
            end_sequence(&mut ended, group.reuses_prefix, &mut self.device)?;
        }
        group.sequences = sequences;
        if group.sequences.is_empty() {
            self.running.remove(at);
        }
        Ok(ids)
    }
}
