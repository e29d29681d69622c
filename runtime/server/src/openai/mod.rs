//! OpenAI's routes, with vLLM's extras.

pub mod models;

pub mod completions;

pub mod chat;

pub mod responses;

mod logprobs;

use crate::error::ApiError;
use crate::fields::Fields;
use crate::generation::{Generation, Piece};
use crate::names;
use crate::receipt::Receipt;
use crate::stream::{Gone, Writer};
use llmrt::engine::{Decoding, Request};
use serde_json::{Map, Value, json};

/// What the chunks of an answer share.
pub struct Envelope {
    id: String,
    object: &'static str,
    created: u64,
    model: String,
}

impl Envelope {
    fn new(prefix: &str, object: &'static str, model: &str) -> Envelope {
        Envelope {
            id: names::id(prefix),
            object,
            created: names::since_1970().as_secs(),
            model: model.into(),
        }
    }

    /// A chunk, or the whole answer.
    fn with(&self, choices: Vec<Value>, usage: Option<Value>) -> Value {
        let mut answer = json!({
            "id": self.id, "object": self.object, "created": self.created, "model": self.model,
            "choices": choices,
        });
        if let Some(usage) = usage {
            answer["usage"] = usage;
        }
        answer
    }

    /// A chunk with one choice.
    fn chunk(&self, choice: Value, streaming: Streaming) -> Value {
        self.with(vec![choice], streaming.chunk_usage())
    }
}

/// The form of an answer: `stream`, `stream_options`, `return_token_ids`.
#[derive(Clone, Copy, Debug)]
pub struct Streaming {
    pub stream: bool,
    pub include_usage: bool,
    /// Whether choices have the ids of their tokens. Each token is then an event of its own, with text or not.
    pub has_token_ids: bool,
}

impl Streaming {
    fn read(fields: &Fields) -> Result<Streaming, ApiError> {
        let options = Fields(fields.get_or("stream_options", Map::new())?);
        Ok(Streaming {
            stream: fields.get_or("stream", false)?,
            include_usage: options.get_or("include_usage", false)? || Receipt::is_requested(fields)?,
            has_token_ids: fields.get_or("return_token_ids", false)?,
        })
    }

    /// The `usage` of a chunk with choices: null where the last chunk has one.
    fn chunk_usage(self) -> Option<Value> {
        self.include_usage.then_some(Value::Null)
    }
}

/// The end of a stream: usage if it is requested, or the error, then `[DONE]`.
async fn end(
    out: &Writer,
    envelope: &Envelope,
    streaming: Streaming,
    generation: &Generation,
    outcome: Result<(), ApiError>,
) -> Result<(), Gone> {
    match outcome {
        Err(e) => out.data(&e.openai()).await?,
        Ok(()) if streaming.include_usage => {
            out.data(&envelope.with(Vec::new(), Some(usage(generation)))).await?;
        }
        Ok(()) => {}
    }
    out.text("data: [DONE]\n\n".into()).await
}

/// `token_ids` of a chunk: the token that came with its text.
fn token_ids(piece: &Piece) -> Value {
    piece.token.iter().map(|token| token.token).collect::<Vec<_>>().into()
}

/// `usage` of an answer.
pub fn usage(generation: &Generation) -> Value {
    let usage = generation.usage();
    generation.with_receipt(json!({
        "prompt_tokens": usage.n_prompt,
        "completion_tokens": usage.n_generated,
        "total_tokens": usage.n_prompt + usage.n_generated,
        "prompt_tokens_details": { "cached_tokens": usage.n_cached },
    }))
}

/// Texts that are compared when they are complete have no log-probabilities of their tokens.
fn check_logprobs(request: &Request) -> Result<(), ApiError> {
    let compares = request.width() > request.n || matches!(request.decoding, Decoding::Beam(_));
    match request.logprobs {
        Some(_) if compares => {
            Err(ApiError::unsupported("logprobs", "not with best_of above n or with use_beam_search"))
        }
        _ => Ok(()),
    }
}
