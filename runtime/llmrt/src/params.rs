//! How a text is generated.

use llmrt_engine::{Decoding, Request, SamplingParams};

/// How tokens are picked, and when the text ends. For more, such as several texts or beam search, see
/// [`crate::Llm::request`].
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Params {
    /// Temperature, top-k, top-p, penalties, biases, seed. Without a seed it is 0: the same request gives the same text.
    pub sampling: SamplingParams,
    /// Most tokens; `None`: up to the model's end or the context's.
    pub max_tokens: Option<usize>,
    /// Strings that end the text, and are no part of it.
    pub stop: Vec<String>,
}

impl Params {
    /// The likeliest token, again and again.
    pub fn greedy() -> Params {
        Params { sampling: SamplingParams::greedy(), ..Params::default() }
    }

    /// A request with these.
    pub(crate) fn apply(&self, request: Request) -> Request {
        Request {
            decoding: Decoding::Sample { params: self.sampling.clone(), seed: 0 },
            max_tokens: self.max_tokens,
            stop: self.stop.clone(),
            ..request
        }
    }
}
