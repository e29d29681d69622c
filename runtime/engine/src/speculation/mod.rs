//! Speculative decoding: next tokens are guessed, and one step of the model computes what follows each guess. A text takes the
//! tokens that its sampler picks of those logits, so it is the text that it would be without guesses; right guesses spare
//! steps (Leviathan et al. 2023, with the target's own draw in place of the rejection rule, as llama.cpp has it).

mod attach;
mod layers;
mod model;
mod ngram;
mod vocabulary;

pub use attach::{attach_layers, brings_vocabulary};
pub use layers::DraftLayers;
pub use model::DraftModel;
pub use ngram::Ngrams;
pub use vocabulary::check_vocabulary;

use crate::error::Result;
use crate::kv::pools::CachePools;
use crate::sequence::{Sequence, TokenId};

/// Tokens among which the likeliest has the probability that a guess must have (llama.cpp's number).
pub(crate) const N_CANDIDATES: usize = 10;

/// Guesses the next tokens of texts. `R` is what computes the texts themselves.
pub trait Drafter<R>: Send {
    /// Guesses for each text, in order; none for some, and at most as many as each has room for.
    fn draft(&mut self, texts: &[DraftInput<'_>], target: &mut R) -> Result<Vec<Vec<TokenId>>>;
}

/// A text whose next tokens are to be guessed.
#[derive(Clone, Copy, Debug)]
pub struct DraftInput<'a> {
    /// Its sequence; all its tokens are known.
    pub sequence: &'a Sequence,
    /// Most guesses, at least 1.
    pub max_drafts: usize,
    /// The memory of its caches.
    pub caches: &'a CachePools,
}

/// What guesses came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DraftUse {
    /// Steps of a text with guesses.
    pub n_drafts: u64,
    /// Guesses in them.
    pub n_draft_tokens: u64,
    /// Of these, those that the text took.
    pub n_accepted_tokens: u64,
}

/// What guesses, and how many tokens.
pub(crate) struct Speculation<R> {
    /// `None` after an error.
    pub drafter: Option<Box<dyn Drafter<R>>>,
    /// Most guesses of a text in a step.
    pub max_drafts: usize,
    pub used: DraftUse,
}

impl DraftUse {
    /// Counts a text's step, if it has guesses.
    pub(crate) fn count(&mut self, n_drafted: usize, n_accepted: usize) {
        self.n_drafts += u64::from(n_drafted > 0);
        self.n_draft_tokens += n_drafted as u64;
        self.n_accepted_tokens += n_accepted as u64;
    }

    /// Adds those of others.
    pub(crate) fn add(&mut self, other: DraftUse) {
        self.n_drafts += other.n_drafts;
        self.n_draft_tokens += other.n_draft_tokens;
        self.n_accepted_tokens += other.n_accepted_tokens;
    }

    /// The share of guesses that were right.
    pub fn acceptance_rate(&self) -> f64 {
        self.n_accepted_tokens as f64 / self.n_draft_tokens.max(1) as f64
    }
}
