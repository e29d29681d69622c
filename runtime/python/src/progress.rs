//! What a request has generated so far.

use crate::error::Failure;
use llmrt::engine::core::Usage;
use llmrt::engine::logprobs::TokenLogprob;
use llmrt::engine::output::CompletionOutput;
use llmrt::engine::{Finish, Request};
use llmrt::{EngineEvent, RequestOutput};
use std::time::Instant;

/// How much of the texts is read at a time.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Taking {
    /// All so far.
    All,
    /// What came since the last time.
    Delta,
}

/// Log-probabilities by token: the token's own, then the likeliest ones, row by row.
#[derive(Clone, Default)]
pub struct Rows {
    /// Token ids, `[n_tokens, n_columns]`.
    pub ids: Vec<u32>,
    /// ln p of each.
    pub values: Vec<f64>,
}

/// One of the texts.
#[derive(Clone, Default)]
pub struct Text {
    /// Which.
    pub index: usize,
    /// Its text.
    pub text: String,
    /// Its tokens.
    pub tokens: Vec<u32>,
    /// Their log-probabilities, where these were requested.
    pub rows: Option<Rows>,
    /// The sum of its tokens' log-probabilities, where these were computed.
    pub cumulative: Option<f64>,
    /// Why it ended.
    pub finish: Option<Finish>,
}

/// What Python reads.
pub struct Snapshot {
    /// The texts.
    pub texts: Vec<Text>,
    /// Of the prompt's tokens but the first.
    pub prompt_rows: Option<Rows>,
    /// Vectors.
    pub embeddings: Vec<Vec<f32>>,
    /// Logits of the prompt's tokens, row by row.
    pub logits: Option<Vec<f32>>,
    /// Tokens.
    pub usage: Usage,
    /// Seconds from the beginning to the first token.
    pub first_token: Option<f64>,
    /// Seconds from the beginning to the end; `None`: it goes on.
    pub ended: Option<f64>,
}

/// A request's texts as they grow.
pub struct Progress {
    texts: Vec<Text>,
    has_prompt_logprobs: bool,
    /// Whether texts carry sums of log-probabilities.
    has_sums: bool,
    logits: Option<Vec<f32>>,
    /// How it ended, until that is taken.
    end: Option<Result<RequestOutput, Failure>>,
    is_changed: bool,
    began: Instant,
    first_token: Option<Instant>,
    ended: Option<Instant>,
}

impl Progress {
    /// Of a request that is about to be queued.
    pub fn new(request: &Request) -> Progress {
        let is_compared = request.is_beam_search() || request.width() > request.n;
        let n = if is_compared { 0 } else { request.n };
        let has_logprobs = request.logprobs.is_some();
        let text = |index| Text { index, rows: has_logprobs.then(Rows::default), ..Text::default() };
        Progress {
            texts: (0..n).map(text).collect(),
            has_prompt_logprobs: request.prompt_logprobs.is_some(),
            has_sums: has_logprobs || is_compared,
            logits: request.prompt_logits.map(|_| Vec::new()),
            end: None,
            is_changed: false,
            began: Instant::now(),
            first_token: None,
            ended: None,
        }
    }

    /// Whether nothing more comes.
    pub fn has_ended(&self) -> bool {
        self.ended.is_some()
    }

    /// Ends it with an error.
    pub fn fail(&mut self, failure: Failure) {
        self.end_with(Err(failure));
    }

    fn end_with(&mut self, end: Result<RequestOutput, Failure>) {
        self.ended = Some(Instant::now());
        self.end = Some(end);
        self.is_changed = true;
    }

    /// Takes in what happened.
    pub fn add(&mut self, event: EngineEvent) {
        match event {
            EngineEvent::Token { index, token, .. } => {
                self.first_token.get_or_insert_with(Instant::now);
                let Some(text) = self.texts.get_mut(index) else { return };
                text.text.push_str(&token.text);
                text.tokens.push(token.token);
                if let (Some(rows), Some(logprob)) = (&mut text.rows, token.logprob) {
                    rows.push(TokenLogprob { token: token.token, logprob }, &token.top_logprobs);
                    *text.cumulative.get_or_insert(0.0) += logprob;
                }
                self.is_changed = true;
            }
            EngineEvent::TextEnded { index, text: rest, finish, .. } => {
                let Some(text) = self.texts.get_mut(index) else { return };
                text.text.push_str(&rest);
                text.finish = Some(finish);
                self.is_changed = true;
            }
            EngineEvent::Logits { logits, .. } => {
                if let Some(rows) = &mut self.logits {
                    rows.extend_from_slice(&logits);
                }
            }
            EngineEvent::ContextFull { .. } => {}
            EngineEvent::Finished(output) => {
                self.first_token =
                    self.first_token.or_else(|| (output.usage.n_generated > 0).then(Instant::now));
                self.end_with(Ok(output));
            }
            EngineEvent::Failed { error, .. } => self.fail(error.into()),
        }
    }

    /// What is new, if anything is. After the end there is nothing more.
    pub fn take(&mut self, taking: Taking) -> Result<Option<Snapshot>, Failure> {
        if !std::mem::take(&mut self.is_changed) {
            return Ok(None);
        }
        let output = self.end.take().transpose()?;
        let seconds = |at: Option<Instant>| at.map(|at| (at - self.began).as_secs_f64());
        let (first_token, ended) = (seconds(self.first_token), seconds(self.ended));
        let Some(output) = output else {
            let texts = self.texts.iter_mut().map(|text| text.taken(taking)).collect();
            let (prompt_rows, embeddings, logits) = (None, Vec::new(), None);
            let usage = Usage::default();
            return Ok(Some(Snapshot { texts, prompt_rows, embeddings, logits, usage, first_token, ended }));
        };
        let mut streamed = std::mem::take(&mut self.texts);
        let texts: Vec<Text> = match taking {
            Taking::Delta if !streamed.is_empty() => {
                for text in &mut streamed {
                    let ended = output.outputs.iter().find(|ended| ended.index == text.index);
                    text.finish = ended.map(|ended| ended.finish.clone());
                }
                streamed
            }
            _ => output.outputs.into_iter().map(|ended| self.complete(ended, &mut streamed)).collect(),
        };
        let prompt_rows = self.has_prompt_logprobs.then(|| {
            let mut rows = Rows::default();
            output.prompt_logprobs.iter().for_each(|place| rows.push(place.token, &place.top));
            rows
        });
        let (embeddings, logits, usage) = (output.embeddings, self.logits.take(), output.usage);
        Ok(Some(Snapshot { texts, prompt_rows, embeddings, logits, usage, first_token, ended }))
    }

    /// A text that ended; what was streamed of it has its log-probabilities.
    fn complete(&self, ended: CompletionOutput, streamed: &mut [Text]) -> Text {
        let CompletionOutput { index, text, tokens, cumulative_logprob, finish } = ended;
        let streamed = streamed.iter_mut().find(|text| text.index == index);
        let rows = streamed.and_then(|text| {
            let n_streamed = text.tokens.len().max(1);
            text.rows.take().map(|rows| rows.truncated(tokens.len(), n_streamed))
        });
        let cumulative = self.has_sums.then_some(cumulative_logprob);
        Text { index, text, tokens, rows, cumulative, finish: Some(finish) }
    }
}

impl Text {
    /// The text, or what came since the last time.
    fn taken(&mut self, taking: Taking) -> Text {
        match taking {
            Taking::All => self.clone(),
            Taking::Delta => Text {
                index: self.index,
                text: std::mem::take(&mut self.text),
                tokens: std::mem::take(&mut self.tokens),
                rows: self.rows.as_mut().map(std::mem::take),
                cumulative: self.cumulative,
                finish: self.finish.clone(),
            },
        }
    }
}

impl Rows {
    fn push(&mut self, own: TokenLogprob, top: &[TokenLogprob]) {
        for place in std::iter::once(&own).chain(top) {
            self.ids.push(place.token);
            self.values.push(place.logprob);
        }
    }

    /// The rows of the first `n` of `n_rows` tokens.
    fn truncated(mut self, n: usize, n_rows: usize) -> Rows {
        let n_columns = self.ids.len() / n_rows;
        self.ids.truncate(n * n_columns);
        self.values.truncate(n * n_columns);
        self
    }
}
