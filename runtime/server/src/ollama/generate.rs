//! POST /api/generate and /api/chat: lines of JSON, or one object with `"stream": false`.

use super::options::Options;
use crate::answer::{Parser, Part, Parts};
use crate::error::ApiError;
use crate::fields::Fields;
use crate::generation::{Generation, Piece, finish_reason};
use crate::keep_alive;
use crate::model::Model;
use crate::prompts::{Chat, Prompt};
use crate::registry::{Lease, on_thread};
use crate::sampling::NO_GRAMMARS;
use crate::server::App;
use crate::stream::{self, Gone, Writer};
use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use llmrt::engine::Request;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Fields that would change the answer and are not supported.
const REFUSED: [(&str, &str); 6] = [
    ("format", NO_GRAMMARS),
    ("suffix", "models for infilling are not; put the beginning into the prompt"),
    ("images", "models of text are loaded"),
    ("template", "start the server with --chat-template"),
    ("context", "send the conversation to /api/chat"),
    ("logprobs", "use /v1/completions or /v1/chat/completions"),
];

/// What is answered.
enum Input {
    /// Nothing: the model is loaded, or unloaded.
    Nothing,
    /// A text, as it is if the model has no chat template or `raw` is set.
    Text {
        prompt: String,
        system: Option<String>,
        raw: bool,
    },
    Chat(Chat),
}

/// What an input comes to.
struct Encoded {
    prompt: Prompt,
    parser: Option<Parser>,
    /// Whether the answer goes on the prompt's text.
    continues: bool,
}

/// An answer, ready to be computed.
struct Job {
    app: Arc<App>,
    generation: Generation,
    opening: String,
    /// What cuts the text into its parts; none for text that continues the prompt.
    parser: Option<Parser>,
    /// The name that the client sent.
    model: String,
    is_chat: bool,
    started: Instant,
}

/// /api/generate.
pub async fn generate(State(app): State<Arc<App>>, fields: Fields) -> Result<Response, ApiError> {
    let prompt: String = fields.get_or("prompt", String::new())?;
    let (system, raw) = (fields.get::<String>("system")?, fields.get_or("raw", false)?);
    let system = system.filter(|text| !text.is_empty());
    let input = if prompt.is_empty() { Input::Nothing } else { Input::Text { prompt, system, raw } };
    answer(app, fields, input, false).await
}

/// /api/chat.
pub async fn chat(State(app): State<Arc<App>>, fields: Fields) -> Result<Response, ApiError> {
    let is_empty = fields.value("messages").is_none_or(|m| m.as_array().is_some_and(Vec::is_empty));
    let input =
        if is_empty { Input::Nothing } else { Input::Chat(with_think(Chat::read(&fields)?, &fields)?) };
    answer(app, fields, input, true).await
}

async fn answer(app: Arc<App>, fields: Fields, input: Input, is_chat: bool) -> Result<Response, ApiError> {
    let started = Instant::now();
    fields.refuse(&REFUSED)?;
    let model: String = fields.require("model")?;
    let stream = fields.get_or("stream", true)?;
    let keep_alive = fields.value("keep_alive").map(keep_alive::of_json).transpose();
    let keep_alive = keep_alive.map_err(|e| ApiError::param("keep_alive", format!("keep_alive: {e}")))?;
    let entry = app.registry.find(Some(&model)).await?;
    let options = Options::read(&fields, entry.stored().map(|model| &model.params))?;
    if let Some(time) = keep_alive {
        entry.set_keep_alive(time);
    }
    if matches!(input, Input::Nothing) {
        let unloads = keep_alive == Some(Some(Duration::ZERO));
        match unloads {
            true => app.registry.unload(&entry).await,
            false => drop(app.registry.lease(&entry).await?),
        }
        return Ok(
            Json(loaded(&app, &model, is_chat, if unloads { "unload" } else { "load" })).into_response()
        );
    }
    let lease = app.registry.lease(&entry).await?.with_receipt(&fields)?;
    let (generation, opening, parser) = start(&app, lease, input, options).await?;
    let job = Job { app, generation, opening, parser, model, is_chat, started };
    Ok(match stream {
        true => stream::lines(|out| job.stream(out)),
        false => Json(job.complete().await?).into_response(),
    })
}

/// `think`: whether templates that have a switch for it let the model reason.
fn with_think(mut chat: Chat, fields: &Fields) -> Result<Chat, ApiError> {
    if let Some(think) = fields.get::<bool>("think")? {
        chat.extra.insert("enable_thinking".into(), think.into());
    }
    Ok(chat)
}

/// The answer to an empty prompt.
fn loaded(app: &App, model: &str, is_chat: bool, reason: &str) -> Value {
    let mut answer = json!({ "model": model, "created_at": app.now_utc() });
    let (name, text) = text_field(is_chat, "");
    answer[name] = text;
    answer["done"] = true.into();
    answer["done_reason"] = reason.into();
    answer
}

async fn start(
    app: &App,
    lease: Lease,
    input: Input,
    options: Options,
) -> Result<(Generation, String, Option<Parser>), ApiError> {
    let now = app.now();
    let (lease, encoded) = on_thread(move || {
        let encoded = encode(&lease.model, input, &now)?;
        Ok::<_, ApiError>((lease, encoded))
    })
    .await??;
    let Encoded { prompt, parser, continues } = encoded;
    let request = options.request(prompt.tokens.len(), lease.model.n_ctx)?;
    let opening = prompt.opening.trim_start().to_string();
    let request = Request { prompt: prompt.tokens, continues: continues || !opening.is_empty(), ..request };
    let generation = Generation::start(lease, vec![request], app.options.request_timeout, &app.metrics)?;
    Ok((generation, opening, parser))
}

fn encode(model: &Model, input: Input, now: &str) -> Result<Encoded, ApiError> {
    let chat = match input {
        Input::Chat(chat) => chat,
        Input::Text { prompt, system, raw } if !raw && model.template.is_some() => {
            let system = system.map(|text| json!({ "role": "system", "content": text }));
            let user = json!({ "role": "user", "content": prompt });
            Chat { messages: system.into_iter().chain([user]).collect(), ..Chat::default() }
        }
        Input::Text { system: Some(_), raw: false, .. } => {
            let remedy = "the model has no chat template; put it into the prompt";
            return Err(ApiError::unsupported("system", remedy));
        }
        Input::Text { prompt, .. } => {
            return Ok(Encoded { prompt: model.encode_text(&prompt)?, parser: None, continues: true });
        }
        Input::Nothing => Chat::default(),
    };
    let (prompt, parser) = model.encode_chat(&chat, now)?;
    Ok(Encoded { prompt, parser: Some(parser), continues: false })
}

/// The text of an answer, by the route.
fn text_field(is_chat: bool, text: &str) -> (&'static str, Value) {
    match is_chat {
        true => ("message", json!({ "role": "assistant", "content": text })),
        false => ("response", text.into()),
    }
}

impl Job {
    /// The whole answer.
    async fn complete(mut self) -> Result<Value, ApiError> {
        let answers = self.generation.finish().await?;
        let output = answers.into_iter().next().and_then(|answer| answer.output.outputs.into_iter().next());
        let output = output.ok_or_else(|| ApiError::internal("the request ended without a text"))?;
        let mut parts = match self.parser.take() {
            Some(parser) => Parts::of(parser, &output.text),
            None => Parts { text: output.text, ..Parts::default() },
        };
        parts.text.insert_str(0, &self.opening);
        Ok(self.last(&parts, finish_reason(&output.finish)))
    }

    /// A line for each part of the text.
    async fn stream(mut self, out: Writer) -> Result<(), Gone> {
        let opening = Parts { text: self.opening.clone(), ..Parts::default() };
        if !opening.text.is_empty() {
            out.line(&self.part(&opening, false)).await?;
        }
        let mut reason = "stop";
        loop {
            let piece = match self.generation.piece().await {
                Ok(Some(piece)) => piece,
                Ok(None) => break,
                Err(e) => return out.line(&e.ollama()).await,
            };
            for parts in self.parts(&piece) {
                out.line(&self.part(&parts, false)).await?;
            }
            reason = piece.finish.as_ref().map_or(reason, finish_reason);
        }
        out.line(&self.last(&Parts::default(), reason)).await
    }

    /// What is new with a piece, part by part.
    fn parts(&mut self, piece: &Piece) -> Vec<Parts> {
        let mut parts = match &mut self.parser {
            Some(parser) => parser.push(&piece.text),
            None if piece.text.is_empty() => Vec::new(),
            None => vec![Part::Text(piece.text.clone())],
        };
        if let (Some(parser), true) = (&mut self.parser, piece.finish.is_some()) {
            parts.extend(parser.finish());
        }
        let of = |part| match part {
            Part::Text(text) => Parts { text, ..Parts::default() },
            Part::Reasoning(reasoning) => Parts { reasoning, ..Parts::default() },
            Part::Tool(call) => Parts { calls: vec![call], ..Parts::default() },
        };
        parts.into_iter().map(of).collect()
    }

    fn part(&self, parts: &Parts, done: bool) -> Value {
        let mut line = json!({ "model": self.model, "created_at": self.app.now_utc() });
        let (name, text) = text_field(self.is_chat, &parts.text);
        line[name] = text;
        let fields = if self.is_chat { &mut line["message"] } else { &mut line };
        if !parts.reasoning.is_empty() {
            fields["thinking"] = parts.reasoning.as_str().into();
        }
        if !parts.calls.is_empty() {
            fields["tool_calls"] = parts.calls.iter().map(|call| call.ollama()).collect();
        }
        line["done"] = done.into();
        line
    }

    /// The last object, with the times in nanoseconds.
    fn last(&self, parts: &Parts, reason: &str) -> Value {
        let usage = self.generation.usage();
        let first = self.generation.first_token.unwrap_or_else(Instant::now);
        let nanos = |time: Duration| time.as_nanos() as u64;
        let mut last = self.part(parts, true);
        let more = json!({
            "done_reason": reason,
            "total_duration": nanos(self.started.elapsed()),
            "load_duration": nanos(self.generation.lease.load),
            "prompt_eval_count": usage.n_prompt,
            "prompt_eval_duration": nanos(first - self.generation.started),
            "eval_count": usage.n_generated,
            "eval_duration": nanos(first.elapsed()),
        });
        let more = more.as_object().into_iter().flatten();
        more.for_each(|(key, value)| last[key] = value.clone());
        self.generation.with_receipt(last)
    }
}
