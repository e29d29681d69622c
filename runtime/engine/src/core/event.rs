//! What happens to requests.

use crate::error::Error;
use crate::logprobs::TokenLogprob;
use crate::output::{CompletionOutput, SampledToken};
use crate::request::RequestId;
use crate::stop::Finish;

/// Something that happened in a step.
#[derive(Clone, PartialEq, Debug)]
pub enum EngineEvent {
    /// A text has a token more. Not for texts that are compared when they are complete: beams, and `best_of` above `n`.
    Token {
        /// Whose.
        request: RequestId,
        /// Which of its texts.
        index: usize,
        /// The token.
        token: SampledToken,
    },
    /// A text has ended.
    TextEnded {
        /// Whose.
        request: RequestId,
        /// Which of its texts.
        index: usize,
        /// The text that was held back.
        text: String,
        /// Why.
        finish: Finish,
    },
    /// A text fills the context and its request allows a context shift: before the next step [`crate::EngineCore::replace`]
    /// can shorten it, else it ends.
    ContextFull {
        /// Whose.
        request: RequestId,
    },
    /// The logits after a token of the prompt, where these were requested.
    Logits {
        /// Whose.
        request: RequestId,
        /// Position of the token.
        position: usize,
        /// `[n_vocab]`.
        logits: Vec<f32>,
    },
    /// All texts of a request have ended.
    Finished(RequestOutput),
    /// A request ended by an error; others go on.
    Failed {
        /// Which.
        request: RequestId,
        /// Why.
        error: Error,
    },
}

impl EngineEvent {
    /// The request that it is about.
    pub fn request(&self) -> RequestId {
        match self {
            EngineEvent::Finished(output) => output.request,
            EngineEvent::Token { request, .. }
            | EngineEvent::TextEnded { request, .. }
            | EngineEvent::ContextFull { request }
            | EngineEvent::Logits { request, .. }
            | EngineEvent::Failed { request, .. } => *request,
        }
    }

    /// Whether no other event of its request follows.
    pub fn is_last(&self) -> bool {
        matches!(self, EngineEvent::Finished(_) | EngineEvent::Failed { .. })
    }
}

/// What a request came to.
#[derive(Clone, PartialEq, Debug)]
pub struct RequestOutput {
    /// Which.
    pub request: RequestId,
    /// Its texts: the best first where more were generated than requested, else by index.
    pub outputs: Vec<CompletionOutput>,
    /// Its tokens and preemptions.
    pub usage: Usage,
    /// Of each token of the prompt but the first, where these were requested.
    pub prompt_logprobs: Vec<PromptLogprob>,
    /// The prompt's vector, or those of its tokens, where these were requested.
    pub embeddings: Vec<Vec<f32>>,
}

/// A token of a prompt, and what the model expected in its place.
#[derive(Clone, PartialEq, Debug)]
pub struct PromptLogprob {
    /// The token.
    pub token: TokenLogprob,
    /// The likeliest tokens, the likeliest first.
    pub top: Vec<TokenLogprob>,
}

/// What a request took.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// Tokens of the prompt.
    pub n_prompt: usize,
    /// Of these, those whose keys and values were in the cache at the end.
    pub n_computed: usize,
    /// Of these, those that earlier requests had computed.
    pub n_cached: usize,
    /// Tokens generated, of all texts.
    pub n_generated: usize,
    /// How often its blocks went to other requests.
    pub n_preemptions: usize,
}

/// The use of the KV cache since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct KvUse {
    /// Most blocks that requests had in a step.
    pub max_blocks: usize,
    /// How often a request lost its blocks to others.
    pub n_preemptions: usize,
}
