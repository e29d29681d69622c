//! Slots of recurrent states. A sequence with a state holds two: a step reads one and writes the other, and only success
//! exchanges them, so a step that failed can be repeated.

use crate::batch::Batch;
use crate::error::{Error, Result};
use crate::schedule::ScheduledChunk;
use crate::sequence::{Sequence, SequenceId};
use std::collections::BTreeMap;

/// Slots that one sequence holds.
pub(crate) const PER_SEQUENCE: usize = 2;

/// All slots of a model's recurrent states; none of models without any.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct StateSlots {
    is_used: bool,
    /// Pairs of slots that no sequence holds: pair p is slots 2p and 2p + 1.
    free: Vec<usize>,
    held: BTreeMap<SequenceId, Held>,
}

/// The slots of one sequence.
#[derive(Clone, PartialEq, Debug)]
struct Held {
    pair: usize,
    /// Which of the pair has the state: 0 or 1.
    half: usize,
    /// The tokens that the state is of; 0: none, the next step starts from zeros.
    n_tokens: usize,
}

impl StateSlots {
    /// Slots for `n_seqs` sequences of a recurrent model; no slots of another.
    pub fn new(is_recurrent: bool, n_seqs: usize) -> StateSlots {
        StateSlots { is_used: is_recurrent, free: (0..n_seqs).rev().collect(), held: BTreeMap::new() }
    }

    /// Gives each sequence of a step its slots. Where there are none left, the youngest sequence that is not in the step
    /// gives its own up. A sequence whose state is not of its computed tokens (they were truncated, or the state was
    /// given up) starts over.
    pub fn assign(&mut self, chunks: &[ScheduledChunk], queue: &mut [Sequence]) -> Result<()> {
        if !self.is_used {
            return Ok(());
        }
        self.drop_ended(queue);
        for chunk in chunks {
            let seq = queue.iter_mut().find(|seq| seq.id == chunk.id);
            let seq = seq.ok_or(Error::UnknownSequence { id: chunk.id })?;
            let n_tokens = self.held.get(&seq.id).map_or(0, |held| held.n_tokens);
            if n_tokens != seq.n_computed() {
                seq.forget_computed();
            }
            let n_computed = seq.n_computed();
            if !self.held.contains_key(&chunk.id) {
                let pair = self.free.pop().or_else(|| self.take_youngest(chunks, queue));
                let pair = pair.ok_or(Error::NoStateSlot { id: chunk.id })?;
                self.held.insert(chunk.id, Held { pair, half: 0, n_tokens: 0 });
            }
            self.held.entry(chunk.id).and_modify(|held| held.n_tokens = n_computed);
        }
        Ok(())
    }

    /// Writes the slots of a batch's sequences into it.
    pub fn fill(&self, batch: &mut Batch) {
        let slots = |id, half: fn(&Held) -> Option<usize>| {
            let slot = self.held.get(id).and_then(|held| Some(held.pair * PER_SEQUENCE + half(held)?));
            slot.and_then(|slot| i32::try_from(slot).ok()).unwrap_or(-1)
        };
        let reads = batch.ids.iter().map(|id| slots(id, |held| (held.n_tokens > 0).then_some(held.half)));
        let writes = batch.ids.iter().map(|id| slots(id, |held| Some(1 - held.half)));
        batch.state_slots = reads.chain(writes).collect();
    }

    /// After a step: what it wrote is the state of a sequence's first `n_tokens` tokens.
    pub fn commit(&mut self, id: SequenceId, n_tokens: usize) {
        if let Some(held) = self.held.get_mut(&id) {
            (held.half, held.n_tokens) = (1 - held.half, n_tokens);
        }
    }

    fn drop_ended(&mut self, queue: &[Sequence]) {
        let free = &mut self.free;
        self.held.retain(|id, held| {
            let is_queued = queue.iter().any(|seq| seq.id == *id);
            if !is_queued {
                free.push(held.pair);
            }
            is_queued
        });
    }

    /// No sequence counts tokens as computed without holding their state, so that after the loss of all states those that
    /// do can be computed again side by side.
    fn take_youngest(&mut self, chunks: &[ScheduledChunk], queue: &mut [Sequence]) -> Option<usize> {
        let is_idle = |seq: &&mut Sequence| chunks.iter().all(|chunk| chunk.id != seq.id);
        let seq = queue.iter_mut().rev().filter(is_idle).find(|seq| self.held.contains_key(&seq.id))?;
        seq.forget_computed();
        self.held.remove(&seq.id).map(|held| held.pair)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sequences 0, 1, … of so many tokens, of which so many are computed.
    fn queue(of: &[(usize, usize)]) -> Vec<Sequence> {
        let sequence = |(i, &(n_tokens, n_computed))| {
            let mut seq = Sequence::new(SequenceId(i as u64), vec![1; n_tokens]).unwrap();
            seq.advance(n_computed);
            seq
        };
        of.iter().enumerate().map(sequence).collect()
    }

    /// A step of one more token of each of these sequences: the slots that it reads, then those that it writes.
    fn step(slots: &mut StateSlots, queue: &mut [Sequence], ids: &[u64]) -> Vec<i32> {
        let chunks =
            ids.iter().map(|&id| ScheduledChunk { id: SequenceId(id), n_new: 1 }).collect::<Vec<_>>();
        slots.assign(&chunks, queue).unwrap();
        let mut batch = Batch { ids: chunks.iter().map(|chunk| chunk.id).collect(), ..Batch::default() };
        slots.fill(&mut batch);
        batch.state_slots
    }

    fn commit(slots: &mut StateSlots, queue: &mut [Sequence], ids: &[usize]) {
        for &i in ids {
            queue[i].advance(1);
            slots.commit(queue[i].id, queue[i].n_computed());
        }
    }

    #[test]
    fn a_step_that_failed_reads_and_writes_the_same_slots_again() {
        let (mut slots, mut queue) = (StateSlots::new(true, 2), queue(&[(9, 0), (9, 0)]));
        assert_eq!(step(&mut slots, &mut queue, &[0, 1]), [-1, -1, 1, 3]);
        assert_eq!(step(&mut slots, &mut queue, &[0, 1]), [-1, -1, 1, 3], "repeated");
        commit(&mut slots, &mut queue, &[0, 1]);
        assert_eq!(step(&mut slots, &mut queue, &[0, 1]), [1, 3, 0, 2]);
        commit(&mut slots, &mut queue, &[1]);
        assert_eq!(step(&mut slots, &mut queue, &[0, 1]), [1, 2, 0, 3]);
    }

    #[test]
    fn a_truncated_sequence_starts_over() {
        let (mut slots, mut queue) = (StateSlots::new(true, 1), queue(&[(9, 0)]));
        for _ in 0..3 {
            step(&mut slots, &mut queue, &[0]);
            commit(&mut slots, &mut queue, &[0]);
        }
        let mut pool = crate::BlockPool::new(4, 4).unwrap();
        queue[0].truncate(2, &mut pool).unwrap();
        queue[0].push_prompt(&[1, 1]);
        assert_eq!(queue[0].n_computed(), 2);
        assert_eq!(step(&mut slots, &mut queue, &[0])[0], -1);
        assert_eq!(queue[0].n_computed(), 0);
    }

    #[test]
    fn the_youngest_idle_sequence_gives_its_slots_up_and_starts_over_later() {
        let (mut slots, mut queue) = (StateSlots::new(true, 2), queue(&[(9, 0), (9, 0), (9, 0)]));
        step(&mut slots, &mut queue, &[0, 1]);
        commit(&mut slots, &mut queue, &[0, 1]);
        assert_eq!(step(&mut slots, &mut queue, &[2]), [-1, 3], "those of sequence 1");
        assert_eq!(queue[1].n_computed(), 0);
        commit(&mut slots, &mut queue, &[2]);
        assert_eq!(step(&mut slots, &mut queue, &[0, 1]), [1, -1, 0, 3]);
        queue.remove(0);
        assert_eq!(step(&mut slots, &mut queue, &[2])[1], 1, "those of sequence 0, which ended");
    }

    #[test]
    fn a_model_without_states_has_no_slots() {
        let (mut slots, mut queue) = (StateSlots::new(false, 1), queue(&[(9, 5)]));
        assert_eq!(step(&mut slots, &mut queue, &[0]), [-1, -1]);
        assert_eq!(queue[0].n_computed(), 5);
    }

    #[test]
    fn more_sequences_than_slots_in_one_step_are_refused() {
        let (mut slots, mut queue) = (StateSlots::new(true, 1), queue(&[(9, 0), (9, 0)]));
        let chunks = [0, 1].map(|id| ScheduledChunk { id: SequenceId(id), n_new: 1 });
        let error = slots.assign(&chunks, &mut queue).unwrap_err();
        assert_eq!(error, Error::NoStateSlot { id: SequenceId(1) });
    }
}
