//! POST /v1/chat/completions.

use super::{Envelope, Streaming, check_logprobs, end, logprobs, token_ids, usage};
use crate::answer::{Parser, Part, Parts};
use crate::error::ApiError;
use crate::fields::Fields;
use crate::generation::{Answer, Generation, Piece, finish_reason};
use crate::prompts::Chat;
use crate::registry::{Lease, on_thread};
use crate::sampling;
use crate::server::App;
use crate::stream::{self, Gone, Writer};
use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use llmrt::engine::output::{CompletionOutput, SampledToken};
use llmrt::engine::{Finish, Request};
use serde_json::{Value, json};
use std::sync::Arc;

/// Fields of a chat that would change the answer and are not supported.
const REFUSED: [(&str, &str); 8] = [
    ("functions", "use tools"),
    ("function_call", "use tools"),
    ("audio", "models of text are loaded"),
    ("web_search_options", "leave it out"),
    ("continue_final_message", "use /v1/completions"),
    ("echo", "use /v1/completions"),
    ("chat_template", "start the server with --chat-template"),
    ("documents", "put them into a message, or into chat_template_kwargs"),
];

/// A request that was read.
struct Call {
    request: Request,
    chat: Chat,
    streaming: Streaming,
}

/// An answer, ready to be computed.
struct Job {
    generation: Generation,
    opening: String,
    envelope: Envelope,
    streaming: Streaming,
    /// What cuts each text into its parts.
    parsers: Vec<Parser>,
    has_logprobs: bool,
    /// Ids of the prompt, where they are returned.
    prompt_token_ids: Option<Vec<u32>>,
}

/// The route.
pub async fn route(State(app): State<Arc<App>>, fields: Fields) -> Result<Response, ApiError> {
    let (entry, fields) = app.resolve(fields).await?;
    let call = Call::read(&fields)?;
    let lease = app.lease_of(&entry, &fields).await?;
    let job = call.start(&app, lease).await?;
    Ok(match job.streaming.stream {
        true => stream::events(|out| job.stream(out)),
        false => Json(job.complete().await?).into_response(),
    })
}

impl Call {
    fn read(fields: &Fields) -> Result<Call, ApiError> {
        fields.refuse(&REFUSED)?;
        let mut request = sampling::request(fields)?;
        request.max_tokens = sampling::max_tokens(fields, &["max_completion_tokens", "max_tokens"], None)?;
        let top = sampling::logprobs(fields, "top_logprobs")?;
        request.logprobs = match (fields.get_or("logprobs", false)?, top) {
            (true, top) => Some(top.unwrap_or(0)),
            (false, None | Some(0)) => None,
            (false, Some(_)) => return Err(ApiError::param("top_logprobs", "it needs `logprobs`: true")),
        };
        check_logprobs(&request)?;
        let streaming = Streaming::read(fields)?;
        if streaming.stream && request.prompt_logprobs.is_some() {
            return Err(ApiError::unsupported("prompt_logprobs", "not with stream"));
        }
        Ok(Call { request, chat: Chat::read(fields)?, streaming })
    }

    async fn start(self, app: &App, lease: Lease) -> Result<Job, ApiError> {
        let Call { request, chat, streaming } = self;
        let now = app.now();
        let (lease, prompt, parser) = on_thread(move || {
            let (prompt, parser) = lease.model.encode_chat(&chat, &now)?;
            Ok::<_, ApiError>((lease, prompt, parser))
        })
        .await??;
        let object = if streaming.stream { "chat.completion.chunk" } else { "chat.completion" };
        let envelope = Envelope::new("chatcmpl-", object, lease.entry().name());
        let (parsers, has_logprobs) = (vec![parser; request.n], request.logprobs.is_some());
        let opening = prompt.opening.trim_start().to_string();
        let prompt_token_ids = streaming.has_token_ids.then(|| prompt.tokens.clone());
        let request = Request { prompt: prompt.tokens, continues: !opening.is_empty(), ..request };
        let timeout = app.options.request_timeout;
        let generation = Generation::start(lease, vec![request], timeout, &app.metrics)?;
        Ok(Job { generation, opening, envelope, streaming, parsers, has_logprobs, prompt_token_ids })
    }
}

impl Job {
    /// The whole answer.
    async fn complete(mut self) -> Result<Value, ApiError> {
        let answers = self.generation.finish().await?;
        let choices = answers.iter().flat_map(|answer| {
            answer.output.outputs.iter().enumerate().map(|(i, output)| self.choice(i, answer, output))
        });
        let mut whole = self.envelope.with(choices.collect(), Some(usage(&self.generation)));
        let of_prompt = answers.iter().map(|answer| &answer.output.prompt_logprobs).find(|p| !p.is_empty());
        if let Some(of_prompt) = of_prompt {
            whole["prompt_logprobs"] = logprobs::of_prompt(&self.generation.lease.model.tokenizer, of_prompt);
        }
        self.add_prompt(&mut whole);
        Ok(whole)
    }

    /// Adds the prompt's ids to the answer or its first chunk.
    fn add_prompt(&self, chunk: &mut Value) {
        if let Some(ids) = &self.prompt_token_ids {
            chunk["prompt_token_ids"] = ids.as_slice().into();
        }
    }

    fn choice(&self, index: usize, answer: &Answer, output: &CompletionOutput) -> Value {
        let parts = Parts::of(self.parsers[0].clone(), &output.text);
        let tokens = answer.tokens.get(&output.index).map_or(&[][..], Vec::as_slice);
        let mut choice = json!({
            "index": index,
            "message": message(&self.opening, &parts),
            "logprobs": self.logprobs(&tokens[..tokens.len().min(output.tokens.len())]),
            "finish_reason": reason(&output.finish, parts.calls.len()),
        });
        if self.streaming.has_token_ids {
            choice["token_ids"] = output.tokens.as_slice().into();
        }
        choice
    }

    fn logprobs(&self, tokens: &[SampledToken]) -> Value {
        if !self.has_logprobs {
            return Value::Null;
        }
        let tokenizer = &self.generation.lease.model.tokenizer;
        let content: Vec<Value> = tokens.iter().map(|token| logprobs::of_chat(tokenizer, token)).collect();
        json!({ "content": content, "refusal": null })
    }

    /// The answer in chunks.
    async fn stream(mut self, out: Writer) -> Result<(), Gone> {
        for index in 0..self.parsers.len() {
            let delta = json!({ "role": "assistant", "content": self.opening });
            let mut chunk = self.chunk(choice(index, delta, Value::Null));
            if index == 0 {
                self.add_prompt(&mut chunk);
            }
            out.data(&chunk).await?;
        }
        let outcome = loop {
            match self.generation.piece().await {
                Ok(Some(piece)) => self.send_piece(&out, &piece).await?,
                Ok(None) => break Ok(()),
                Err(e) => break Err(e),
            }
        };
        end(&out, &self.envelope, self.streaming, &self.generation, outcome).await
    }

    /// Its parts, then why it ended.
    async fn send_piece(&mut self, out: &Writer, piece: &Piece) -> Result<(), Gone> {
        let parser = &mut self.parsers[piece.index];
        let n_before = parser.n_calls();
        let mut parts = parser.push(&piece.text);
        if piece.finish.is_some() {
            parts.extend(parser.finish());
        }
        let n_calls = parser.n_calls();
        let token = piece.token.as_ref().filter(|_| self.has_logprobs);
        let mut logprobs = token.map(|token| self.logprobs(std::slice::from_ref(token)));
        let mut ids = self.streaming.has_token_ids.then(|| token_ids(piece));
        if parts.is_empty() && piece.token.is_some() && (logprobs.is_some() || ids.is_some()) {
            parts.push(Part::Text(String::new()));
        }
        for delta in deltas(parts, n_before) {
            let mut choice = choice(piece.index, delta, Value::Null);
            choice["logprobs"] = logprobs.take().unwrap_or_default();
            if let Some(ids) = &mut ids {
                choice["token_ids"] = std::mem::replace(ids, Value::Array(Vec::new()));
            }
            out.data(&self.chunk(choice)).await?;
        }
        match &piece.finish {
            Some(finish) => {
                let reason = reason(finish, n_calls).into();
                out.data(&self.chunk(choice(piece.index, json!({}), reason))).await
            }
            None => Ok(()),
        }
    }

    fn chunk(&self, choice: Value) -> Value {
        self.envelope.chunk(choice, self.streaming)
    }
}

/// A choice of a chunk, without log-probabilities.
fn choice(index: usize, delta: Value, finish: Value) -> Value {
    json!({ "index": index, "delta": delta, "logprobs": null, "finish_reason": finish })
}

/// `message` of a choice.
fn message(opening: &str, parts: &Parts) -> Value {
    let text = format!("{opening}{}", parts.text);
    let content = if text.is_empty() && !parts.calls.is_empty() { Value::Null } else { text.into() };
    let mut message = json!({ "role": "assistant", "content": content });
    if !parts.reasoning.is_empty() {
        message["reasoning_content"] = parts.reasoning.as_str().into();
    }
    if !parts.calls.is_empty() {
        message["tool_calls"] = parts.calls.iter().map(|call| call.openai()).collect();
    }
    message
}

/// `delta` of each part, with the calls numbered on from `n_calls`.
fn deltas(parts: Vec<Part>, n_calls: usize) -> Vec<Value> {
    let mut index = n_calls;
    let delta = |part: Part| match part {
        Part::Text(text) => json!({ "content": text }),
        Part::Reasoning(text) => json!({ "reasoning_content": text }),
        Part::Tool(call) => {
            let mut call = call.openai();
            call["index"] = index.into();
            index += 1;
            json!({ "tool_calls": [call] })
        }
    };
    parts.into_iter().map(delta).collect()
}

fn reason(finish: &Finish, n_calls: usize) -> &'static str {
    match finish_reason(finish) {
        "stop" if n_calls > 0 => "tool_calls",
        reason => reason,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(more: &str) -> Result<Call, ApiError> {
        let text = format!(r#"{{"messages": [{{"role": "user", "content": "hi"}}]{more}}}"#);
        Call::read(&Fields::parse(text.as_bytes()).unwrap())
    }

    #[test]
    fn lengths_and_logprobs_are_read() {
        assert_eq!(call("").unwrap().request.max_tokens, None);
        assert_eq!(call(r#", "max_tokens": 3"#).unwrap().request.max_tokens, Some(3));
        let both = call(r#", "max_tokens": 3, "max_completion_tokens": 4"#).unwrap();
        assert_eq!(both.request.max_tokens, Some(4));
        let logprobs = |more: &str| call(more).unwrap().request.logprobs;
        assert_eq!(logprobs(""), None);
        assert_eq!(logprobs(r#", "logprobs": true"#), Some(0));
        assert_eq!(logprobs(r#", "logprobs": true, "top_logprobs": 2"#), Some(2));
        assert_eq!(call(r#", "top_logprobs": 2"#).err().unwrap().param.as_deref(), Some("top_logprobs"));
    }

    #[test]
    fn a_message_has_text_reasoning_and_calls() {
        let parser = Parser::new("<tool_call></think>", "", true);
        let parts = |text: &str| Parts::of(parser.clone(), text);
        assert_eq!(message("", &parts("hi")).to_string(), r#"{"role":"assistant","content":"hi"}"#);
        let called =
            parts("<think>hm</think><tool_call>{\"name\": \"f\", \"arguments\": {\"x\": 1}}</tool_call>");
        let mut message = message("", &called);
        message["tool_calls"][0]["id"] = "call-1".into();
        assert_eq!(
            message.to_string(),
            r#"{"role":"assistant","content":null,"reasoning_content":"hm","tool_calls":[{"id":"call-1","type":"function","function":{"name":"f","arguments":"{\"x\":1}"}}]}"#
        );
        assert_eq!(reason(&Finish::Eos, 1), "tool_calls");
        assert_eq!(reason(&Finish::Length, 1), "length");
    }

    #[test]
    fn fields_of_other_kinds_of_models_are_refused() {
        let refused = |more: &str| call(more).err().unwrap().param.unwrap();
        assert_eq!(refused(r#", "functions": [{}]"#), "functions");
        assert_eq!(refused(r#", "response_format": {"type": "json_schema"}"#), "response_format");
        assert_eq!(refused(r#", "tools": [{}], "tool_choice": "required""#), "tool_choice");
    }
}
