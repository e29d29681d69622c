//! What is requested of the engine: a prompt, how tokens are picked, and when the text ends.

use crate::beam::BeamParams;
use crate::error::{Error, Result};
use crate::kv::prefix::BlockHash;
use crate::sampler::{Sampler, SamplingParams};
use crate::sequence::TokenId;
use crate::stop::StopFilter;
use llmrt_models::{Pooling, StepOutput};
use std::fmt;
use std::sync::Arc;

/// The name of a request, unique in its engine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RequestId(pub u64);

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "request {}", self.0)
    }
}

/// A prompt and what is generated after it. The names are vLLM's.
#[derive(Clone, PartialEq, Debug)]
pub struct Request {
    /// Token ids, at least one.
    pub prompt: Vec<TokenId>,
    /// Token ids that the encoder reads, of models with an encoder and a decoder; the prompt is what the decoder starts with.
    pub encoder_tokens: Arc<[TokenId]>,
    /// Token ids that the text is known to begin with, as of one whose engine was lost: they are computed with the prompt, and
    /// count as sampled in all other respects. Only for a single text that is sampled by the chain.
    pub resumed: Vec<TokenId>,
    /// How tokens are picked.
    pub decoding: Decoding,
    /// Texts that are returned.
    pub n: usize,
    /// Texts that are generated, of which the `n` with the largest cumulative log-probability are returned; the same as `n`
    /// if not given.
    pub best_of: Option<usize>,
    /// Most tokens of a text; `None`: up to the context's end. 0: the prompt alone is computed.
    pub max_tokens: Option<usize>,
    /// Tokens before which no end-of-generation token, stop token or stop string ends the text.
    pub min_tokens: usize,
    /// Strings that end a text, and are no part of it.
    pub stop: Vec<String>,
    /// Tokens that end a text, and are no part of it.
    pub stop_token_ids: Vec<TokenId>,
    /// Words that no text contains: the last token of each never comes after its others. A word counts at the beginning of a
    /// text and after a space.
    pub bad_words: Vec<String>,
    /// Whether end-of-generation tokens are tokens like others.
    pub ignore_eos: bool,
    /// Whether the text goes on another one, so that a space in front of it counts.
    pub continues: bool,
    /// How many of the likeliest tokens are returned with their log-probabilities, beside the picked one; `None`: not even
    /// that.
    pub logprobs: Option<usize>,
    /// How many of the likeliest tokens are returned for each place of the prompt but the first, beside its own token; `None`:
    /// not even that. Cached prefixes are computed then, too.
    pub prompt_logprobs: Option<usize>,
    /// Position of the prompt from which on the logits after each token are returned; cached prefixes are computed then, too.
    pub prompt_logits: Option<usize>,
    /// Whether a text that fills the context may go on after other tokens ([`crate::EngineEvent::ContextFull`]); only for a
    /// single text.
    pub context_shift: bool,
    /// Larger goes first.
    pub priority: i32,
    /// Requests with different salts share no cached prefixes.
    pub cache_salt: String,
}

/// How tokens are picked.
#[derive(Clone, PartialEq, Debug)]
pub enum Decoding {
    /// By the chain of samplers. Text `i` has the seed `seed + i`.
    Sample {
        /// Its numbers.
        params: SamplingParams,
        /// Where `params` has none.
        seed: u64,
    },
    /// As llama2.c's `run` does.
    Llama2c {
        /// 0 or less: the likeliest token.
        temperature: f32,
        /// Only the fewest that together have this probability take part.
        top_p: f32,
        /// Of its random numbers.
        seed: u64,
    },
    /// The likeliest texts, by beam search of width `best_of`.
    Beam(BeamParams),
    /// These tokens, whatever the logits are.
    Forced {
        /// The tokens.
        tokens: Vec<TokenId>,
        /// How many of the largest logits are read; `None`: all.
        required_top_k: Option<usize>,
    },
    /// Not at all: the prompt's vectors are returned.
    Embed {
        /// How those of its tokens become one.
        pooling: Pooling,
        /// Whether vectors are divided by their lengths.
        normalise: bool,
    },
}

impl Request {
    /// The vectors of a text, whose tokens are the prompt.
    pub fn embed(prompt: Vec<TokenId>, pooling: Pooling, normalise: bool) -> Request {
        let decoding = Decoding::Embed { pooling, normalise };
        Request { decoding, max_tokens: Some(0), ..Request::greedy(prompt) }
    }

    /// The logits after each token of a text from a position on; nothing follows it.
    pub fn logits(prompt: Vec<TokenId>, from: usize) -> Request {
        Request { prompt_logits: Some(from), max_tokens: Some(0), ..Request::greedy(prompt) }
    }

    /// The likeliest token, again and again.
    pub fn greedy(prompt: Vec<TokenId>) -> Request {
        Request {
            prompt,
            encoder_tokens: Arc::default(),
            resumed: Vec::new(),
            decoding: Decoding::Sample { params: SamplingParams::greedy(), seed: 0 },
            n: 1,
            best_of: None,
            max_tokens: None,
            min_tokens: 0,
            stop: Vec::new(),
            stop_token_ids: Vec::new(),
            bad_words: Vec::new(),
            ignore_eos: false,
            continues: true,
            logprobs: None,
            prompt_logprobs: None,
            prompt_logits: None,
            context_shift: false,
            priority: 0,
            cache_salt: String::new(),
        }
    }

    /// Tokens of the prompt: those that the encoder reads, in models that have one.
    pub(crate) fn n_prompt(&self) -> usize {
        if self.encoder_tokens.is_empty() { self.prompt.len() } else { self.encoder_tokens.len() }
    }

    /// Sequences that it has at once.
    pub fn width(&self) -> usize {
        self.best_of.unwrap_or(self.n)
    }

    /// Names the first parameter that makes no sense.
    pub(crate) fn check(&self) -> Result<()> {
        let bad = |name, found: usize, expected| Err(Error::BadParam { name, found: found as f64, expected });
        if self.n == 0 {
            return bad("n", 0, "1 or more texts");
        }
        if self.width() < self.n {
            return bad("best_of", self.width(), "at least n");
        }
        if self.max_tokens.is_some_and(|max| max < self.min_tokens) {
            return bad("min_tokens", self.min_tokens, "at most max_tokens");
        }
        StopFilter::new(self.stop.clone())?;
        if !self.resumed.is_empty()
            && (self.width() > 1 || self.logits_from().is_some() || !self.is_sampled())
        {
            return bad(
                "resumed",
                self.resumed.len(),
                "0 tokens but for a single sampled text without logits of its prompt",
            );
        }
        match &self.decoding {
            Decoding::Beam(params) => params.check(self.width()),
            _ if self.context_shift && (self.width() > 1 || self.is_beam_search()) => {
                bad("best_of", self.width(), "1 for a text whose context is shifted")
            }
            Decoding::Forced { .. } if self.width() > 1 => bad("best_of", self.width(), "1 for given tokens"),
            Decoding::Embed { .. } if self.width() > 1 => bad("n", self.width(), "1 for embeddings"),
            _ => self.sampler(0).map(drop),
        }
    }

    /// The sampler of text `i`; none where tokens are not sampled one by one.
    pub(crate) fn sampler(&self, i: usize) -> Result<Option<Sampler>> {
        match &self.decoding {
            Decoding::Sample { params, seed } => {
                let seed = params.seed.unwrap_or(*seed).wrapping_add(i as u64);
                Ok(Some(Sampler::new(SamplingParams { seed: None, ..params.clone() }, seed)?))
            }
            Decoding::Llama2c { temperature, top_p, seed } => {
                Ok(Some(Sampler::llama2c(*temperature, *top_p, seed.wrapping_add(i as u64))?))
            }
            Decoding::Beam(_) | Decoding::Forced { .. } | Decoding::Embed { .. } => Ok(None),
        }
    }

    /// Whether its tokens are sampled by the chain.
    fn is_sampled(&self) -> bool {
        matches!(self.decoding, Decoding::Sample { .. })
    }

    /// The tokens that are known before the first step, of the prompt and of its text.
    pub(crate) fn known_tokens(&self) -> Vec<TokenId> {
        [&self.prompt[..], &self.resumed].concat()
    }

    /// Whether it returns the likeliest texts.
    pub fn is_beam_search(&self) -> bool {
        matches!(self.decoding, Decoding::Beam(_))
    }

    /// What steps give of its tokens.
    pub(crate) fn output(&self) -> StepOutput {
        match self.decoding {
            Decoding::Embed { pooling: Pooling::Rank, .. } => StepOutput::Scores,
            Decoding::Embed { .. } => StepOutput::Embeddings,
            _ => StepOutput::Logits,
        }
    }

    /// Whether tokens are generated, or log-probabilities returned.
    pub(crate) fn is_of_text(&self) -> bool {
        let is_of_tokens = self.max_tokens != Some(0) || self.prompt_logprobs.is_some();
        is_of_tokens && self.output() == StepOutput::Logits
    }

    /// Whether its log-probabilities are read, so that whole rows of logits are needed.
    pub(crate) fn needs_logprobs(&self) -> bool {
        self.logprobs.is_some() || self.width() > self.n || self.is_beam_search()
    }

    /// The position from which the logits of its prompt are needed, if they are.
    pub(crate) fn logits_from(&self) -> Option<usize> {
        self.prompt_logprobs.map(|_| 0).or(self.prompt_logits)
    }

    /// What its blocks are named from.
    pub(crate) fn root(&self) -> BlockHash {
        BlockHash::of_salt(&self.cache_salt)
    }
}
