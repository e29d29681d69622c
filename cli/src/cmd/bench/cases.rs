//! What is timed: how long a prompt or some steps take after a context of a given length.

use crate::error::{Error, Result};
use crate::session::Core;
use crate::{interrupt, session};
use llmrt_engine::{Decoding, EngineEvent, Request, RequestId, TokenId};
use std::time::{Duration, Instant};

/// Requests of random tokens, whose steps are timed.
pub struct Cases<'e> {
    core: &'e mut Core,
    n_batch: usize,
    n_depth: usize,
    required_top_k: Option<usize>,
    tokens: Tokens,
    /// Tokens of the context before a test, by sequence: the same in each repetition, so that they are in the prefix cache.
    contexts: Vec<Vec<TokenId>>,
}

impl Cases<'_> {
    /// Nothing is computed yet. Of each row of logits the `top_k` largest are read back; 0: all.
    pub fn new(core: &mut Core, n_depth: usize, top_k: usize) -> Cases<'_> {
        let tokens = Tokens::new(core.runner().model().config.n_vocab);
        let n_batch = core.scheduler().config().max_num_batched_tokens;
        let required_top_k = Some(top_k).filter(|&k| k > 0);
        Cases { core, n_batch, n_depth, required_top_k, tokens, contexts: Vec::new() }
    }

    /// Tokens that a sequence may reach in a test.
    pub fn n_needed(n_depth: usize, n_prompt: usize, n_gen: usize) -> usize {
        (n_depth + n_prompt).max(n_depth.max(1) + n_gen + 2)
    }

    /// Time for a prompt of `n` random tokens after the depth; nothing for none.
    pub fn prompt(&mut self, n: usize) -> Result<Duration> {
        if n == 0 {
            return Ok(Duration::ZERO);
        }
        let mut prompt = self.context(0, self.n_depth);
        prompt.extend(self.tokens.by_ref().take(n));
        let id = self.add(prompt, Vec::new())?;
        while let Some((_, n_computed)) = self.core.progress(id).filter(|(_, n)| *n < self.n_depth) {
            // The first step finds what is cached, and computes one token more.
            let n_left = if n_computed == 0 { 1 } else { self.n_depth - n_computed };
            self.step(n_left.min(self.n_batch))?;
        }
        let started = Instant::now();
        self.steps_to_end()?;
        Ok(started.elapsed())
    }

    /// Time for `n` steps of one random token for each of so many sequences, after the depth or one token.
    pub fn decode(&mut self, n: usize, n_sequences: usize) -> Result<Duration> {
        if n == 0 {
            return Ok(Duration::ZERO);
        }
        let depth = self.n_depth.max(1);
        // All but the last token of each context goes to the prefix cache, so that all sequences begin in one step.
        for i in 0..n_sequences {
            let mut context = self.context(i, depth);
            context.pop();
            if !context.is_empty() {
                self.add(context, Vec::new())?;
                self.steps_to_end()?;
            }
        }
        let mut ids = Vec::new();
        for i in 0..n_sequences {
            let tokens = self.tokens.by_ref().take(n + 2).collect();
            let context = self.context(i, depth);
            ids.push(self.add(context, tokens)?);
        }
        while ids.iter().any(|&id| self.core.progress(id).is_some_and(|(n, n_computed)| n_computed < n)) {
            self.step(self.n_batch)?;
        }
        let (started, mut n_tokens) = (Instant::now(), 0);
        for _ in 0..n {
            n_tokens += self.step(self.n_batch)?;
        }
        let time = started.elapsed();
        ids.into_iter().for_each(|id| drop(self.core.abort(id)));
        if n_tokens != n * n_sequences {
            return Err(Error::usage(format!(
                "{n_sequences} sequences at depth {depth} do not run together, since the KV cache has no room for all: raise \
                 --kv-memory or --memory-utilization, or lower -s, -d or -n"
            )));
        }
        Ok(time)
    }

    fn steps_to_end(&mut self) -> Result<()> {
        while !self.core.is_idle() {
            self.step(self.n_batch)?;
        }
        Ok(())
    }

    /// The context of a sequence, random once.
    fn context(&mut self, i: usize, n_tokens: usize) -> Vec<TokenId> {
        while self.contexts.len() <= i {
            let tokens = self.tokens.by_ref().take(self.n_depth.max(1)).collect();
            self.contexts.push(tokens);
        }
        self.contexts[i][..n_tokens].to_vec()
    }

    /// A request that goes on with these tokens; without any it ends with its prompt.
    fn add(&mut self, prompt: Vec<TokenId>, tokens: Vec<TokenId>) -> Result<RequestId> {
        let max_tokens = Some(tokens.len());
        let decoding = Decoding::Forced { tokens, required_top_k: self.required_top_k };
        Ok(self.core.add(Request { decoding, max_tokens, ignore_eos: true, ..Request::greedy(prompt) })?)
    }

    /// One step of at most so many tokens; how many tokens it led to.
    fn step(&mut self, n_tokens: usize) -> Result<usize> {
        self.core.set_max_num_batched_tokens(n_tokens)?;
        let events = session::step(self.core)?;
        if interrupt::is_requested() {
            return Err(Error::interrupted());
        }
        let mut n_picked = 0;
        for event in events {
            match event {
                EngineEvent::Token { .. } => n_picked += 1,
                EngineEvent::Failed { error, .. } => return Err(error.into()),
                _ => {}
            }
        }
        Ok(n_picked)
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
