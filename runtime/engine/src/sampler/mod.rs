//! Picks the next token from a row of logits.
//!
//! The chain, in llama.cpp's order: logit bias, penalties, top-k, typical, top-p, min-p, temperature,
//! then one draw. Temperature comes last, so it changes how bold the draw is, not which tokens take part, unless
//! [`SamplingRules::Vllm`] puts it before the cuts. At temperature 0 or less the largest logit after bias and penalties wins
//! and nothing else counts.
//!
//! Each stage is a file with one function from candidates to candidates. No stage removes the last candidate. Where the
//! largest logits decide, the chain gives the same token from them alone.

mod candidate;
mod draw;
mod exp;
mod llama2c;
mod logit_bias;
mod min_p;
mod params;
mod penalties;
mod rng;
mod select;
mod top_k;
mod top_p;
mod typical;

pub use candidate::Candidate;
pub(crate) use candidate::check as check_logits;
pub use llama2c::{Llama2c, XorShift64Star};
pub use params::{SamplingParams, SamplingRules};
pub use rng::Rng;
pub(crate) use select::largest;

use crate::error::{Error, Result};
use crate::sequence::TokenId;

/// The logits of one position, from which a token is picked.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Row<'a> {
    /// Those of the whole vocabulary, in the order of ids.
    All(&'a [f32]),
    /// The largest, none of them NaN, and no NaN among those left out: largest first, of equal ones the smaller id first.
    /// Fewer than the vocabulary has.
    Largest(&'a [Candidate]),
}

/// A way to pick tokens, with the state of its random numbers. One per sequence.
#[derive(Clone, Debug)]
pub enum Sampler {
    /// The chain of this module.
    Chain(Box<Chain>),
    /// What llama2.c's `run` does.
    Llama2c(Llama2c),
}

impl Sampler {
    /// The chain. `random_seed` counts when `params.seed` is `None`; the caller takes it from where it likes.
    pub fn new(params: SamplingParams, random_seed: u64) -> Result<Self> {
        Ok(Self::Chain(Box::new(Chain::new(params, random_seed)?)))
    }

    /// llama2.c's sampler.
    pub fn llama2c(temperature: f32, top_p: f32, seed: u64) -> Result<Self> {
        Ok(Self::Llama2c(Llama2c::new(temperature, top_p, seed)?))
    }

    /// How many of the largest logits decide the next token; `None`: all of them. It does not change.
    pub fn required_top_k(&self) -> Option<usize> {
        match self {
            Self::Chain(chain) => chain.params.required_top_k(),
            Self::Llama2c(llama2c) => llama2c.required_top_k(),
        }
    }

    /// Draws what a token takes of the random numbers, for one that is known.
    pub fn skip(&mut self) {
        match self {
            Self::Chain(chain) => chain.skip(),
            Self::Llama2c(_) => {}
        }
    }

    /// The token that comes after `history`, which is the prompt and `n_generated` tokens after it. [`Row::Largest`] needs
    /// as many logits of the number in [`Sampler::required_top_k`], and gives the token that [`Row::All`] would have given.
    pub fn sample(&mut self, row: Row<'_>, history: &[TokenId], n_generated: usize) -> Result<TokenId> {
        if let Row::Largest(largest) = row {
            let needed = self.required_top_k();
            if needed.is_none_or(|needed| needed > largest.len()) {
                return Err(Error::TooFewLogits { found: largest.len(), needed });
            }
        }
        match (self, row) {
            (Self::Chain(chain), row) => chain.sample(row, history, n_generated),
            (Self::Llama2c(llama2c), Row::All(logits)) => llama2c.sample(logits),
            (Self::Llama2c(_), Row::Largest(largest)) => {
                candidate::check_largest(largest).map(|()| largest[0].id)
            }
        }
    }
}

/// Parameters, random numbers, and memory for the candidates that is used again for every token.
#[derive(Clone, Debug)]
pub struct Chain {
    params: SamplingParams,
    rng: Rng,
    candidates: Vec<Candidate>,
}

impl Chain {
    /// Checks the parameters and seeds the random numbers.
    pub fn new(params: SamplingParams, random_seed: u64) -> Result<Self> {
        params.check()?;
        let rng = Rng::new(params.seed.unwrap_or(random_seed));
        Ok(Self { params, rng, candidates: Vec::new() })
    }

    fn skip(&mut self) {
        if !self.params.is_greedy() {
            self.rng.next_f64();
        }
    }

    /// The token that comes after `history`.
    fn sample(&mut self, row: Row<'_>, history: &[TokenId], n_generated: usize) -> Result<TokenId> {
        let (p, c) = (&self.params, &mut self.candidates);
        let window = p.penalty_window(history);
        let n_vocab = match row {
            Row::All(logits) => {
                select::select(logits, window, p, c)?;
                logits.len()
            }
            Row::Largest(largest) => {
                candidate::read_largest(largest, c)?;
                largest.len()
            }
        };
        self.pick(n_vocab, history, n_generated)
    }

    /// One of the candidates.
    fn pick(&mut self, n_vocab: usize, history: &[TokenId], n_generated: usize) -> Result<TokenId> {
        let (p, c) = (&self.params, &mut self.candidates);
        logit_bias::apply(c, &p.logit_bias, n_vocab)?;
        let window = p.penalty_window(history);
        penalties::apply(c, window, p.counted(window, n_generated), p);
        if c.iter().all(|c| c.logit == f32::NEG_INFINITY) {
            return Err(Error::AllForbidden);
        }
        if p.is_greedy() {
            return Ok(candidate::largest(c));
        }
        let is_first = p.rules == SamplingRules::Vllm;
        if is_first {
            c.iter_mut().for_each(|c| c.logit /= p.temperature);
        }
        top_k::apply(c, p.top_k);
        typical::apply(c, p.typical_p);
        top_p::apply(c, p.top_p);
        min_p::apply(c, p.min_p);
        Ok(draw::draw(c, if is_first { 1.0 } else { p.temperature }, &mut self.rng))
    }
}

#[cfg(test)]
mod tests;
