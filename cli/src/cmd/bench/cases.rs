//! What is timed: how long a prompt or some steps take after a context of a given length.

use crate::error::{Error, Exit, Result};
use crate::{interrupt, session};
use llmrt_engine::{Engine, Logits, SequenceId, TokenId};
use std::time::{Duration, Instant};

/// Sequences that were read up to a depth, for tests that begin there.
pub struct Cases<'e> {
    engine: &'e mut Engine,
    n_depth: usize,
    required_top_k: Option<usize>,
    tokens: Tokens,
    sequences: Vec<SequenceId>,
}

impl Cases<'_> {
    /// Nothing is read yet. Of each row of logits the `top_k` largest are read back; 0: all.
    pub fn new(engine: &mut Engine, n_depth: usize, top_k: usize) -> Cases<'_> {
        let tokens = Tokens::new(engine.model().config.n_vocab);
        let required_top_k = Some(top_k).filter(|&k| k > 0);
        Cases { engine, n_depth, required_top_k, tokens, sequences: Vec::new() }
    }

    /// Time for a prompt of `n` random tokens after the depth; nothing for none.
    pub fn prompt(&mut self, n: usize) -> Result<Duration> {
        if n == 0 {
            return Ok(Duration::ZERO);
        }
        self.ready(if self.n_depth == 0 { 0 } else { 1 }, self.n_depth)?;
        let tokens: Vec<_> = self.tokens.by_ref().take(n).collect();
        let id = match self.sequences.first() {
            Some(&id) => {
                self.engine.push_prompt(id, &tokens)?;
                id
            }
            None => self.add(tokens)?,
        };
        let started = Instant::now();
        self.compute(&[id])?;
        let time = started.elapsed();
        match self.n_depth {
            0 => self.engine.remove(id)?,
            depth => self.engine.truncate(id, depth)?,
        }
        Ok(time)
    }

    /// Time for `n` steps of one random token for each of so many sequences, after the depth or one token.
    pub fn decode(&mut self, n: usize, n_sequences: usize) -> Result<Duration> {
        if n == 0 {
            return Ok(Duration::ZERO);
        }
        let depth = self.n_depth.max(1);
        self.ready(n_sequences, depth)?;
        let ids = self.sequences[..n_sequences].to_vec();
        let started = Instant::now();
        for _ in 0..n {
            for (&id, token) in ids.iter().zip(self.tokens.by_ref()) {
                self.engine.push(id, token)?;
            }
            self.compute(&ids)?;
        }
        let time = started.elapsed();
        for &id in &ids {
            match self.n_depth {
                0 => self.engine.remove(id)?,
                depth => self.engine.truncate(id, depth)?,
            }
        }
        if self.n_depth == 0 {
            self.sequences.clear();
        }
        Ok(time)
    }

    /// Sees to it that so many sequences have been read up to `depth`.
    fn ready(&mut self, n_sequences: usize, depth: usize) -> Result<()> {
        while self.sequences.len() < n_sequences {
            let tokens = self.tokens.by_ref().take(depth).collect();
            let id = self.add(tokens)?;
            self.sequences.push(id);
            self.compute(&[id])?;
        }
        Ok(())
    }

    fn add(&mut self, tokens: Vec<TokenId>) -> Result<SequenceId> {
        let id = self.engine.add(tokens)?;
        self.engine.set_required_top_k(id, self.required_top_k)?;
        Ok(id)
    }

    /// Computes what these sequences lack.
    fn compute(&mut self, ids: &[SequenceId]) -> Result<()> {
        let lacks =
            |engine: &Engine| ids.iter().any(|&id| engine.sequence(id).is_some_and(|s| s.n_missing() > 0));
        while lacks(self.engine) {
            let step = session::step(self.engine, Logits::Last, usize::MAX)?;
            if interrupt::is_requested() {
                return Err(Error::interrupted());
            }
            if step.n_tokens == 0 {
                return Err(Error::new(Exit::Failure, "the KV cache has no room for the test: raise -c"));
            }
        }
        Ok(())
    }
}

/// Random token ids, the same in every run: the upper half of a 64-bit linear congruential generator (Knuth's
/// multiplier).
struct Tokens {
    state: u64,
    n_vocab: u64,
}

impl Tokens {
    fn new(n_vocab: u64) -> Tokens {
        Tokens { state: 42, n_vocab: n_vocab.max(1) }
    }
}

impl Iterator for Tokens {
    type Item = TokenId;

    fn next(&mut self) -> Option<TokenId> {
        self.state =
            self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        Some(((self.state >> 32) % self.n_vocab) as TokenId)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_tokens_are_the_same_in_every_run_and_in_the_vocabulary() {
        let ids: Vec<_> = Tokens::new(10).take(1000).collect();
        assert!(ids.iter().all(|&id| id < 10) && (0..10).all(|id| ids.contains(&id)));
        assert_eq!(ids, Tokens::new(10).take(1000).collect::<Vec<_>>());
    }
}
