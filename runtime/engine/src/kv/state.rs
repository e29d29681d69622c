//! Keys and values of a sequence as bytes, to be kept in a file and put back into another engine of the same model.

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::sequence::{SequenceId, TokenId};

/// The rows of a sequence's first tokens in every cache.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KvState {
    /// The tokens whose rows these are.
    pub tokens: Vec<TokenId>,
    /// One entry per cache, ordered by name.
    pub caches: Vec<CacheRows>,
}

/// Rows of one cache, one per token.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CacheRows {
    /// The state's name, such as `blk.0.k_cache`.
    pub name: String,
    /// Bytes of a row.
    pub row_bytes: usize,
    /// `[n_tokens, row_bytes]`.
    pub rows: Vec<u8>,
}

impl Engine {
    /// The rows of all computed tokens of a sequence.
    pub fn export(&self, id: SequenceId) -> Result<KvState> {
        self.check_has_rows()?;
        let seq = self.sequence(id).ok_or(Error::UnknownSequence { id })?;
        let n_tokens = seq.n_computed();
        let slots = self.slots(id, n_tokens)?;
        let mut caches = Vec::new();
        for (name, row_bytes) in self.caches() {
            let mut rows = vec![0; n_tokens * row_bytes];
            for (start, slot, n) in runs(&slots) {
                let part = &mut rows[start * row_bytes..(start + n) * row_bytes];
                self.runner.executor_ref().read_state(&name, (slot * row_bytes) as u64, part)?;
            }
            caches.push(CacheRows { name, row_bytes, rows });
        }
        Ok(KvState { tokens: seq.tokens()[..n_tokens].to_vec(), caches })
    }

    /// Fills a sequence of which nothing is computed with the rows of the tokens it has in common with `state`, and
    /// returns how many these are. The last token is never among them, since its logits are needed.
    pub fn import(&mut self, id: SequenceId, state: &KvState) -> Result<usize> {
        self.check_has_rows()?;
        self.check(state)?;
        let i = self.position(id)?;
        let seq = &mut self.queue[i];
        if seq.n_computed() > 0 {
            return Err(Error::BadState { problem: format!("{id} has computed tokens already") });
        }
        let n_same = seq.tokens().iter().zip(&state.tokens).take_while(|(a, b)| a == b).count();
        let n_tokens = n_same.min(seq.tokens().len() - 1);
        if !seq.blocks.grow(n_tokens, &mut self.pool) {
            return Ok(0);
        }
        let slots = self.slots(id, n_tokens)?;
        for CacheRows { name, row_bytes, rows } in &state.caches {
            for (start, slot, n) in runs(&slots) {
                let part = &rows[start * row_bytes..(start + n) * row_bytes];
                self.runner.executor().write_state(name, (slot * row_bytes) as u64, part)?;
            }
        }
        self.advance(i, n_tokens)?;
        Ok(n_tokens)
    }

    /// An error if caches are not rows by token.
    fn check_has_rows(&self) -> Result<()> {
        match self.model().spec().is_recurrent() {
            true => {
                Err(Error::BadState { problem: "the model has recurrent states, which have none".into() })
            }
            false => Ok(()),
        }
    }

    /// An error if rows cannot be those of this engine's caches.
    fn check(&self, state: &KvState) -> Result<()> {
        let found = state.caches.iter().map(|cache| (cache.name.clone(), cache.row_bytes));
        if !found.eq(self.caches()) {
            let problem = "its caches have other names or rows of other sizes than the model's".into();
            return Err(Error::BadState { problem });
        }
        let n_tokens = state.tokens.len();
        match state
            .caches
            .iter()
            .find(|cache| Some(cache.rows.len()) != n_tokens.checked_mul(cache.row_bytes))
        {
            None => Ok(()),
            Some(cache) => Err(Error::BadState {
                problem: format!(
                    "`{}` has {} bytes: expected {n_tokens} rows of {}",
                    cache.name,
                    cache.rows.len(),
                    cache.row_bytes
                ),
            }),
        }
    }

    /// The caches by name, with the bytes of a row.
    fn caches(&self) -> Vec<(String, usize)> {
        let n_slots = (self.pool.n_blocks() * self.pool.block_size()).max(1) as u64;
        self.runner
            .executor_ref()
            .states()
            .into_iter()
            .map(|(name, n)| (name, (n / n_slots) as usize))
            .collect()
    }

    /// The slots of a sequence's first tokens.
    fn slots(&self, id: SequenceId, n_tokens: usize) -> Result<Vec<usize>> {
        let blocks = self.sequence(id).ok_or(Error::UnknownSequence { id })?.blocks();
        let slot = |position| {
            let slot = blocks.slot(position, self.pool.block_size());
            slot.map(|slot| slot as usize).ok_or(Error::NoSlot { id, position })
        };
        (0..n_tokens).map(slot).collect()
    }
}

/// Slots that follow each other: where they begin in the list, the first of them, and how many.
fn runs(slots: &[usize]) -> Vec<(usize, usize, usize)> {
    let mut runs: Vec<(usize, usize, usize)> = Vec::new();
    for (i, &slot) in slots.iter().enumerate() {
        match runs.last_mut() {
            Some((_, first, n)) if *first + *n == slot => *n += 1,
            _ => runs.push((i, slot, 1)),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_that_follow_each_other_are_one_copy() {
        assert_eq!(runs(&[4, 5, 6, 0, 1, 9]), [(0, 4, 3), (3, 0, 2), (5, 9, 1)]);
        assert_eq!(runs(&[]), []);
    }
}
