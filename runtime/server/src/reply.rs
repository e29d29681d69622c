//! One answer to a chat, cut into its parts, whole or while it is generated.

use crate::answer::{Parser, Part, Parts};
use crate::error::ApiError;
use crate::generation::Generation;
use crate::prompts::Chat;
use crate::registry::{Lease, on_thread};
use crate::server::App;
use llmrt::engine::core::Usage;
use llmrt::engine::{Finish, Request};
use serde_json::Value;

/// An answer, ready to be computed.
pub struct Reply {
    /// The model's name.
    pub model: String,
    /// Tokens of the prompt.
    pub n_prompt: usize,
    /// What the template wrote that the answer begins with.
    pub opening: String,
    generation: Generation,
    parser: Parser,
}

/// What is new in an answer.
pub struct News {
    pub parts: Vec<Part>,
    /// Why the answer ended, with the last parts.
    pub finish: Option<Finish>,
}

impl Reply {
    /// Renders the messages and queues the request, which has one text.
    pub async fn start(app: &App, lease: Lease, request: Request, chat: Chat) -> Result<Reply, ApiError> {
        let now = app.now();
        let (lease, prompt, parser) = on_thread(move || {
            let (prompt, parser) = lease.model.encode_chat(&chat, &now)?;
            Ok::<_, ApiError>((lease, prompt, parser))
        })
        .await??;
        let opening = prompt.opening.trim_start().to_string();
        let n_prompt = prompt.tokens.len();
        let model = lease.entry().name().to_string();
        let request = Request { prompt: prompt.tokens, continues: !opening.is_empty(), ..request };
        let timeout = app.options.request_timeout;
        let generation = Generation::start(lease, vec![request], timeout, &app.metrics)?;
        Ok(Reply { model, n_prompt, opening, generation, parser })
    }

    /// Waits for the whole answer.
    pub async fn whole(&mut self) -> Result<(Parts, Finish), ApiError> {
        let answers = self.generation.finish().await?;
        let output = answers.into_iter().next().and_then(|answer| answer.output.outputs.into_iter().next());
        let output = output.ok_or_else(|| ApiError::internal("the request ended without a text"))?;
        let mut parts = Parts::of(self.parser.clone(), &output.text);
        parts.text.insert_str(0, &self.opening);
        Ok((parts, output.finish))
    }

    /// The next parts, after the opening; `None` after the last.
    pub async fn next(&mut self) -> Result<Option<News>, ApiError> {
        let Some(piece) = self.generation.piece().await? else { return Ok(None) };
        let mut parts = self.parser.push(&piece.text);
        if piece.finish.is_some() {
            parts.extend(self.parser.finish());
        }
        Ok(Some(News { parts, finish: piece.finish }))
    }

    /// Tokens, once it has ended.
    pub fn usage(&self) -> Usage {
        self.generation.usage()
    }

    /// An object with the receipt, if it was requested.
    pub fn with_receipt(&self, usage: Value) -> Value {
        self.generation.with_receipt(usage)
    }

    /// How many tools were called.
    pub fn n_calls(&self) -> usize {
        self.parser.n_calls()
    }
}
