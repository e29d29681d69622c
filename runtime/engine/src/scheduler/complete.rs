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
    /// How many of the step's guesses are the next tokens.
    pub n_accepted: usize,
    /// Its next token, after those.
    pub token: TokenId,
}

impl Child {
    /// A sequence that goes on with this token.
    pub fn new(parent: SequenceId, token: TokenId) -> Child {
        Child { parent, n_accepted: 0, token }
    }
}

impl Scheduler {
    /// Counts the step in flight as computed, and continues sequences by what was sampled of their logits. A request without
    /// an outcome stays as it is: its sequences lack nothing until a later call gives them tokens. Returns each child's
    /// sequence, by outcome.
    pub fn complete(&mut self, outcomes: &[Outcome]) -> Result<Vec<Vec<SequenceId>>> {
        self.check_outcomes(outcomes)?;
        let computed = self.in_flight.take().unwrap_or_default();
        let computed: HashMap<SequenceId, usize> = computed.iter().map(|c| (c.id, c.n_new)).collect();
        let children = outcomes.iter().flat_map(|outcome| &outcome.next);
        let accepted: HashMap<SequenceId, usize> = children.map(|c| (c.parent, c.n_accepted)).collect();
        let mut stepped_back = Vec::new();
        for seq in self.running.iter_mut().flat_map(|g| &mut g.sequences) {
            let Some(n_new) = computed.get(&seq.id) else { continue };
            let n_accepted = accepted.get(&seq.id).copied().unwrap_or(0);
            let n_wrong = n_new.saturating_sub(seq.n_missing() + n_accepted);
            seq.accept(n_accepted);
            seq.shrink(&mut self.device)?;
            // A state is of all tokens of its step: after wrong ones the others are computed again.
            if n_wrong > 0 && self.device.is_recurrent() {
                seq.discard_state(&mut self.device.states)?;
                stepped_back.push(seq.id);
                continue;
            }
            seq.advance(n_new - n_wrong);
            seq.commit_state(&mut self.device.states)?;
            if self.config.prefix_cache && !self.device.is_recurrent() {
                seq.name_blocks(&mut self.device)?;
            }
            seq.leave_windows(&mut self.device)?;
        }
        let mut continued = Vec::new();
        for outcome in outcomes {
            continued.push(self.go_on(outcome, &stepped_back)?);
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
                let (id, n_accepted) = (child.parent, child.n_accepted);
                let parent = group.sequences.iter().find(|seq| seq.id == id);
                let Some(parent) = parent.filter(|parent| self.n_missing_after_step(parent) == 0) else {
                    return Err(Error::UnknownSequence { id });
                };
                let n_drafted = self.n_drafted(parent);
                let is_forked = next.iter().filter(|other| other.parent == id).count() > 1;
                if n_accepted > n_drafted || (is_forked && n_accepted > 0) {
                    return Err(Error::TooManyAccepted { id, n_accepted, n_drafted });
                }
            }
        }
        Ok(())
    }

    /// Tokens that a sequence lacks when the step in flight is computed.
    pub(super) fn n_missing_after_step(&self, seq: &Sequence) -> usize {
        seq.n_missing().saturating_sub(self.n_in_flight(seq))
    }

    /// Guesses of a sequence that the step in flight computes.
    pub(super) fn n_drafted(&self, seq: &Sequence) -> usize {
        self.n_in_flight(seq).saturating_sub(seq.n_missing())
    }

    fn n_in_flight(&self, seq: &Sequence) -> usize {
        let chunks = self.in_flight.iter().flatten();
        chunks.filter(|chunk| chunk.id == seq.id).map(|chunk| chunk.n_new).sum()
    }

    /// Sequences in `stepped_back` have computed all their tokens too, though their state does not count.
    fn go_on(&mut self, outcome: &Outcome, stepped_back: &[SequenceId]) -> Result<Vec<SequenceId>> {
        let Some(at) = self.running.iter().position(|g| g.id == outcome.request) else {
            return Ok(Vec::new());
        };
        let group = &mut self.running[at];
        let (parents, mut sequences): (Vec<_>, Vec<_>) =
            group.sequences.drain(..).partition(|seq| seq.n_missing() == 0 || stepped_back.contains(&seq.id));
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
