//! The next tokens of all requests of a step: of many logits on several threads, since each request has its own state.

use super::active::{Active, Known, Vocabulary};
use super::event::EngineEvent;
use super::runner::Runner;
use crate::batch::OutputRow;
use crate::error::Result;
use crate::request::RequestId;
use crate::sampler::Row;
use crate::scheduler::Child;
use crate::sequence::SequenceId;
use std::sync::{Mutex, PoisonError};

/// Logits from which on several threads pick, about a millisecond's work: waking threads takes some of it. Counted as by
/// [`Active::cost_per_logit`].
const PARALLEL_LOGITS: usize = 1 << 23;

/// A request and its logits; then its next sequences and what happened to it.
pub struct Pick<'a> {
    pub id: RequestId,
    pub active: &'a mut Active,
    given: Vec<(OutputRow, Row<'a>)>,
    pub next: Result<Option<Vec<Child>>>,
    pub events: Vec<EngineEvent>,
}

impl<'a> Pick<'a> {
    /// Nothing is picked yet.
    pub fn new(id: RequestId, active: &'a mut Active, given: Vec<(OutputRow, Row<'a>)>) -> Pick<'a> {
        Pick { id, active, given, next: Ok(None), events: Vec::new() }
    }

    fn cost(&self) -> usize {
        let n = |(_, row): &(OutputRow, Row<'_>)| match row {
            Row::All(logits) => logits.len(),
            Row::Largest(largest) => largest.len(),
        };
        self.given.iter().map(n).sum::<usize>() * self.active.cost_per_logit()
    }

    fn run<'t>(&mut self, known: &dyn Fn(SequenceId) -> Known<'t>, vocabulary: &Vocabulary) {
        self.next = self.active.pick(self.id, &self.given, known, vocabulary, &mut self.events);
    }
}

/// Picks for all requests, each by itself. Their order stays.
pub fn pick_all<'a, 't, R: Runner>(
    mut picks: Vec<Pick<'a>>,
    runner: &R,
    known: &(dyn Fn(SequenceId) -> Known<'t> + Sync),
    vocabulary: &Vocabulary,
) -> Vec<Pick<'a>> {
    let cost: usize = picks.iter().map(Pick::cost).sum();
    if cost < PARALLEL_LOGITS || picks.len() < 2 {
        picks.iter_mut().for_each(|pick| pick.run(known, vocabulary));
        return picks;
    }
    let cells: Vec<Mutex<Pick<'a>>> = picks.into_iter().map(Mutex::new).collect();
    runner.for_each(cells.len(), &|i| {
        cells[i].lock().unwrap_or_else(PoisonError::into_inner).run(known, vocabulary);
    });
    cells.into_iter().map(|cell| cell.into_inner().unwrap_or_else(PoisonError::into_inner)).collect()
}
