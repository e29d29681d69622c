//! Slots of recurrent states. A sequence with a state holds two: a step reads one and writes the other, and only success
//! exchanges them, so a step that failed can be repeated.

use crate::batch::Batch;
use crate::scheduler::ScheduledChunk;
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

    /// Lets sequences start over whose state is not of their computed tokens, since these were truncated. To be done
    /// before a step is planned.
    pub fn restart_truncated(&self, queue: &mut [Sequence]) {
        let is_stale = |seq: &&mut Sequence| self.n_tokens(seq.id) != seq.n_computed();
        queue.iter_mut().filter(|_| self.is_used).filter(is_stale).for_each(Sequence::forget_computed);
    }

    /// Gives each sequence of a step its slots, oldest first. Where there are none left, the youngest of the younger
    /// sequences gives its own up, and starts over later; where there is none, a sequence waits: its chunk is dropped.
    pub fn assign(&mut self, chunks: &mut Vec<ScheduledChunk>, queue: &mut [Sequence]) {
        if !self.is_used {
            return;
        }
        self.drop_ended(queue);
        chunks.retain(|chunk| {
            let Some(i) = queue.iter().position(|seq| seq.id == chunk.id) else { return true };
            if !self.held.contains_key(&chunk.id) {
                let Some(pair) = self.free.pop().or_else(|| self.take_youngest(&mut queue[i + 1..])) else {
                    return false;
                };
                self.held.insert(chunk.id, Held { pair, half: 0, n_tokens: 0 });
            }
            // A sequence that was preempted has no computed tokens, and starts from zeros.
            if self.n_tokens(chunk.id) != queue[i].n_computed() {
                queue[i].forget_computed();
                self.held.entry(chunk.id).and_modify(|held| held.n_tokens = 0);
            }
            true
        });
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

    /// The tokens that a sequence's state is of.
    fn n_tokens(&self, id: SequenceId) -> usize {
        self.held.get(&id).map_or(0, |held| held.n_tokens)
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
    fn take_youngest(&mut self, younger: &mut [Sequence]) -> Option<usize> {
        let seq = younger.iter_mut().rev().find(|seq| self.held.contains_key(&seq.id))?;
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
        let chunk = |&id: &u64| ScheduledChunk { id: SequenceId(id), n_new: 1 };
        let mut chunks: Vec<_> = ids.iter().map(chunk).collect();
        slots.assign(&mut chunks, queue);
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
        slots.restart_truncated(&mut queue);
        assert_eq!(queue[0].n_computed(), 0);
        assert_eq!(step(&mut slots, &mut queue, &[0])[0], -1);
    }

    #[test]
    fn the_youngest_sequence_gives_its_slots_up_to_an_older_one_and_starts_over_later() {
        let (mut slots, mut queue) = (StateSlots::new(true, 2), queue(&[(9, 0), (9, 0), (9, 0)]));
        step(&mut slots, &mut queue, &[1, 2]);
        commit(&mut slots, &mut queue, &[1, 2]);
        assert_eq!(step(&mut slots, &mut queue, &[0, 2]), [-1, 3], "those of sequence 2, which waits");
        assert_eq!((queue[1].n_computed(), queue[2].n_computed()), (1, 0));
        commit(&mut slots, &mut queue, &[0]);
        assert_eq!(step(&mut slots, &mut queue, &[0, 1]), [3, 1, 2, 0]);
        queue.remove(0);
        assert_eq!(step(&mut slots, &mut queue, &[2]), [-1, 3], "those of sequence 0, which ended");
    }

    #[test]
    fn a_model_without_states_has_no_slots() {
        let (mut slots, mut queue) = (StateSlots::new(false, 1), queue(&[(9, 5)]));
        assert_eq!(step(&mut slots, &mut queue, &[0]), [-1, -1]);
        assert_eq!(queue[0].n_computed(), 5);
    }
}
