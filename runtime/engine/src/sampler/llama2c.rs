//! The sampler of llama2.c's `run`, to the bit: the same seed gives the same text.
//!
//! The order of the f32 operations is part of the meaning: divide by the temperature, subtract the largest, exp, sum
//! from the first to the last, divide.

use super::candidate;
use crate::error::{Error, Result};
use crate::sequence::TokenId;

/// Temperature, top-p, random numbers, and memory that is used again for every token.
#[derive(Clone, Debug)]
pub struct Llama2c {
    temperature: f32,
    top_p: f32,
    rng: XorShift64Star,
    probs: Vec<f32>,
    sorted: Vec<(f32, TokenId)>,
}

impl Llama2c {
    /// `temperature` 0 picks the first largest logit; `top_p` outside (0, 1) draws from all tokens; `seed` is not 0.
    pub fn new(temperature: f32, top_p: f32, seed: u64) -> Result<Self> {
        let bad = |name, found, expected| Err(Error::BadParam { name, found, expected });
        if !(0.0..=f32::MAX).contains(&temperature) {
            return bad("temperature", temperature.into(), "0 or more");
        }
        if top_p.is_nan() {
            return bad("top_p", top_p.into(), "a number; outside 0 to 1 every token takes part");
        }
        if seed == 0 {
            return bad("seed", 0.0, "1 or more: this generator never leaves 0");
        }
        Ok(Self { temperature, top_p, rng: XorShift64Star::new(seed), probs: Vec::new(), sorted: Vec::new() })
    }

    /// How many of the largest logits decide the next token; `None`: all of them.
    pub fn required_top_k(&self) -> Option<usize> {
        (self.temperature == 0.0).then_some(1)
    }

    /// The next token. Takes one random number unless the temperature is 0.
    pub fn sample(&mut self, logits: &[f32]) -> Result<TokenId> {
        candidate::check(logits)?;
        if self.temperature == 0.0 {
            return Ok(first_largest(logits));
        }
        self.probs.clear();
        self.probs.extend(logits.iter().map(|logit| logit / self.temperature));
        softmax(&mut self.probs);
        if let Some(at) = self.probs.iter().position(|p| p.is_nan()) {
            return Err(Error::BadLogit { token: at as TokenId, found: logits[at] });
        }

        let coin = self.rng.next_f32();
        if self.top_p <= 0.0 || self.top_p >= 1.0 {
            Ok(pick(self.probs.iter().copied().zip(0..), coin))
        } else {
            Ok(self.pick_top_p(coin))
        }
    }

    /// Draws from the most probable tokens that together have more than `top_p`.
    fn pick_top_p(&mut self, coin: f32) -> TokenId {
        // Less probable ones could not be among them: all n - 1 others together would stay below 1 - top_p.
        let cutoff = (1.0 - self.top_p) / (self.probs.len() as f32 - 1.0);
        let likely = self.probs.iter().copied().zip(0..).filter(|(p, _)| *p >= cutoff);
        self.sorted.clear();
        self.sorted.extend(likely);
        if self.sorted.is_empty() {
            return first_largest(&self.probs); // a vocabulary of one token
        }
        self.sorted.sort_by(|a, b| b.0.total_cmp(&a.0)); // stable: equal ones stay in the order of ids

        let mut together = 0.0;
        let mut n_kept = 0;
        for (p, _) in &self.sorted {
            together += p;
            n_kept += 1;
            if together > self.top_p {
                break;
            }
        }
        pick(self.sorted[..n_kept].iter().copied(), coin * together)
    }
}

/// The first token at which the sum of probabilities exceeds `coin`; the last one if rounding keeps it below.
fn pick(probs: impl Iterator<Item = (f32, TokenId)>, coin: f32) -> TokenId {
    let mut sum = 0.0;
    let mut picked = 0;
    for (p, id) in probs {
        sum += p;
        picked = id;
        if coin < sum {
            break;
        }
    }
    picked
}

/// The index of the largest value; of equal ones, the first.
fn first_largest(values: &[f32]) -> TokenId {
    let mut best = 0;
    for (i, value) in values.iter().enumerate() {
        if *value > values[best] {
            best = i;
        }
    }
    best as TokenId
}

/// x ← exp(x - max) / Σ exp(x - max)
fn softmax(x: &mut [f32]) {
    let max = x.iter().copied().fold(f32::NEG_INFINITY, |max, v| if v > max { v } else { max });
    let mut sum = 0.0;
    for v in x.iter_mut() {
        *v = (*v - max).exp();
        sum += *v;
    }
    for v in x {
        *v /= sum;
    }
}

/// xorshift64* (Vigna 2014) with the shifts 12, 25, 27.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct XorShift64Star {
    state: u64,
}

impl XorShift64Star {
    /// The stream of `seed`; that of 0 is all zeros.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// 32 random bits: the upper half of the product.
    pub fn next_u32(&mut self) -> u32 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        (self.state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32) as u32
    }

    /// A number in [0, 1), a multiple of 2⁻²⁴.
    pub fn next_f32(&mut self) -> f32 {
        (self.next_u32() >> 8) as f32 / 16_777_216.0
    }
}

#[cfg(test)]
#[path = "llama2c_tests.rs"]
mod tests;
