//! Beam search: the texts with the largest sum of log-probabilities, found by following the `width` best at each length
//! (vLLM's rules, which are those of Hugging Face's generate).

use crate::error::{Error, Result};
use crate::logprobs::TokenLogprob;
use crate::sequence::TokenId;

/// How beams are compared, and when the search ends.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct BeamParams {
    /// A score is the sum of log-probabilities divided by the length to this power; above 0 prefers longer texts.
    pub length_penalty: f64,
    /// When the search ends.
    pub early_stopping: EarlyStopping,
}

/// When a search with enough complete texts ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum EarlyStopping {
    /// At once.
    Always,
    /// When the best beam, ending now, would score no better than the worst text that is kept.
    #[default]
    Likely,
    /// When no beam can score better at any length that it may reach (vLLM's "never").
    Never,
}

impl BeamParams {
    pub(crate) fn check(&self, width: usize) -> Result<()> {
        if width < 2 {
            let expected = "2 or more, the width of beam search";
            return Err(Error::BadParam { name: "best_of", found: width as f64, expected });
        }
        if !self.length_penalty.is_finite() {
            let expected = "a number; 1 compares means of log-probabilities";
            return Err(Error::BadParam { name: "length_penalty", found: self.length_penalty, expected });
        }
        Ok(())
    }

    /// What texts are compared by. `n_tokens` counts prompt and generated tokens, without one that ends the text.
    pub fn score(&self, cumulative_logprob: f64, n_tokens: usize) -> f64 {
        cumulative_logprob / (n_tokens as f64).powf(self.length_penalty)
    }
}

/// A text in the making.
#[derive(Clone, PartialEq, Debug)]
pub struct Beam<S> {
    /// What holds its keys and values.
    pub sequence: S,
    /// Generated tokens.
    pub tokens: Vec<TokenId>,
    /// Sum of their log-probabilities.
    pub cumulative_logprob: f64,
}

/// A text that ended.
#[derive(Clone, PartialEq, Debug)]
pub struct Hypothesis {
    /// Generated tokens, without one that ends the text.
    pub tokens: Vec<TokenId>,
    /// Sum of the log-probabilities of all generated tokens.
    pub cumulative_logprob: f64,
    /// By which it is ranked.
    pub score: f64,
    /// Whether a token ended it, and not its length.
    pub is_stopped: bool,
}

/// The state of a search.
#[derive(Clone, PartialEq, Debug)]
pub struct BeamSearch {
    params: BeamParams,
    width: usize,
    n_prompt: usize,
    /// Generated tokens at which a text ends.
    max_tokens: usize,
    /// The best texts that ended, best first; at most `width`.
    pub finished: Vec<Hypothesis>,
}

impl BeamSearch {
    /// A search after a prompt of `n_prompt` tokens.
    pub fn new(params: BeamParams, width: usize, n_prompt: usize, max_tokens: usize) -> BeamSearch {
        BeamSearch { params, width, n_prompt, max_tokens, finished: Vec::new() }
    }

    /// Candidates that are considered of each beam.
    pub fn n_candidates(&self) -> usize {
        2 * self.width
    }

    /// The beams of the next step: the best continuations of `beams`, whose likeliest tokens are `tops`. None when the search
    /// has ended.
    pub fn next<S: Clone>(
        &mut self,
        beams: &[Beam<S>],
        tops: &[Vec<TokenLogprob>],
        ends: impl Fn(TokenId) -> bool,
    ) -> Vec<Beam<S>> {
        let mut running: Vec<Beam<S>> = Vec::new();
        for (beam, top) in beams.iter().zip(tops) {
            for candidate in top {
                let cumulative_logprob = beam.cumulative_logprob + candidate.logprob;
                let mut tokens = beam.tokens.clone();
                let stops = ends(candidate.token);
                if !stops {
                    tokens.push(candidate.token);
                }
                if stops || tokens.len() >= self.max_tokens {
                    self.finish(tokens, cumulative_logprob, stops);
                } else {
                    running.push(Beam { sequence: beam.sequence.clone(), tokens, cumulative_logprob });
                }
            }
        }
        // Beams have one length, so their sums compare as their scores do. A stable sort: of equal ones, the first stays.
        running.sort_by(|a, b| b.cumulative_logprob.total_cmp(&a.cumulative_logprob));
        running.truncate(self.width);
        if self.is_complete(&running) { Vec::new() } else { running }
    }

    fn finish(&mut self, tokens: Vec<TokenId>, cumulative_logprob: f64, is_stopped: bool) {
        let score = self.params.score(cumulative_logprob, self.n_prompt + tokens.len());
        self.finished.push(Hypothesis { tokens, cumulative_logprob, score, is_stopped });
        self.finished.sort_by(|a, b| b.score.total_cmp(&a.score));
        self.finished.truncate(self.width);
    }

    /// Whether going on with `running`, best first, is of no use.
    fn is_complete<S>(&self, running: &[Beam<S>]) -> bool {
        let Some(best) = running.first() else { return true };
        let Some(worst) = self.finished.get(self.width - 1) else { return false };
        let n_now = self.n_prompt + best.tokens.len();
        let n_tokens = match self.params.early_stopping {
            EarlyStopping::Always => return true,
            EarlyStopping::Likely => n_now,
            EarlyStopping::Never if self.params.length_penalty > 0.0 => self.n_prompt + self.max_tokens,
            EarlyStopping::Never => n_now,
        };
        worst.score >= self.params.score(best.cumulative_logprob, n_tokens)
    }
}

#[cfg(test)]
mod tests;
