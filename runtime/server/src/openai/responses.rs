//! POST /v1/responses, without memory of earlier responses.

mod items;
mod read;

use crate::answer::{Part, Parts};
use crate::error::ApiError;
use crate::fields::Fields;
use crate::names;
use crate::reply::{News, Reply};
use crate::server::App;
use crate::stream::{self, Gone, Writer};
use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use items::Items;
use llmrt::engine::Finish;
use serde_json::{Value, json};
use std::sync::Arc;

/// The route.
pub async fn route(State(app): State<Arc<App>>, fields: Fields) -> Result<Response, ApiError> {
    let (entry, fields) = app.resolve(fields).await?;
    let (request, chat) = read::call(&fields)?;
    let stream = fields.get_or("stream", false)?;
    let lease = app.lease_of(&entry, &fields).await?;
    let reply = Reply::start(&app, lease, request, chat).await?;
    let job = Job { reply, id: names::id("resp_"), created: names::since_1970().as_secs(), fields };
    Ok(match stream {
        true => stream::events(|out| job.stream(out)),
        false => Json(job.complete().await?).into_response(),
    })
}

/// A response, ready to be computed.
struct Job {
    reply: Reply,
    id: String,
    created: u64,
    fields: Fields,
}

impl Job {
    /// The whole response.
    async fn complete(mut self) -> Result<Value, ApiError> {
        let (parts, finish) = self.reply.whole().await?;
        let mut items = Items::default();
        all(parts).into_iter().for_each(|part| drop(items.part(part)));
        items.end();
        Ok(self.response(items.done(), Some(&finish)))
    }

    /// The response so far.
    fn response(&self, output: Vec<Value>, finish: Option<&Finish>) -> Value {
        let (status, details) = match finish {
            None => ("in_progress", Value::Null),
            Some(Finish::Length) => ("incomplete", json!({ "reason": "max_output_tokens" })),
            Some(_) => ("completed", Value::Null),
        };
        let given = |name: &str, default: Value| self.fields.value(name).cloned().unwrap_or(default);
        json!({
            "id": self.id, "object": "response", "created_at": self.created, "status": status,
            "error": null, "incomplete_details": details,
            "instructions": given("instructions", Value::Null),
            "max_output_tokens": given("max_output_tokens", Value::Null),
            "model": self.reply.model, "output": output, "parallel_tool_calls": true,
            "previous_response_id": null, "store": false,
            "temperature": given("temperature", json!(1.0)), "top_p": given("top_p", json!(1.0)),
            "text": { "format": { "type": "text" } }, "truncation": "disabled",
            "tool_choice": given("tool_choice", json!("auto")), "tools": given("tools", json!([])),
            "metadata": given("metadata", json!({})),
            "usage": finish.map(|_| self.usage()),
        })
    }

    fn usage(&self) -> Value {
        let usage = self.reply.usage();
        self.reply.with_receipt(json!({
            "input_tokens": usage.n_prompt, "input_tokens_details": { "cached_tokens": usage.n_cached },
            "output_tokens": usage.n_generated, "output_tokens_details": { "reasoning_tokens": 0 },
            "total_tokens": usage.n_prompt + usage.n_generated,
        }))
    }

    /// The response in events: items are added, grow and are done.
    async fn stream(mut self, out: Writer) -> Result<(), Gone> {
        let mut events = Events { out, n: 0 };
        for name in ["response.created", "response.in_progress"] {
            events.send(json!({ "type": name, "response": self.response(Vec::new(), None) })).await?;
        }
        let mut items = Items::default();
        if !self.reply.opening.is_empty() {
            events.send_all(items.part(Part::Text(self.reply.opening.clone()))).await?;
        }
        let mut finish = Finish::Eos;
        loop {
            let News { parts, finish: ended } = match self.reply.next().await {
                Ok(Some(news)) => news,
                Ok(None) => break,
                Err(e) => {
                    let error =
                        json!({ "type": "error", "code": e.code, "message": e.message, "param": e.param });
                    return events.send(error).await;
                }
            };
            for part in parts {
                events.send_all(items.part(part)).await?;
            }
            finish = ended.unwrap_or(finish);
        }
        events.send_all(items.end()).await?;
        let name = if finish == Finish::Length { "response.incomplete" } else { "response.completed" };
        events.send(json!({ "type": name, "response": self.response(items.done(), Some(&finish)) })).await
    }
}

/// The parts of a whole answer in their order.
fn all(parts: Parts) -> Vec<Part> {
    let Parts { text, reasoning, calls } = parts;
    let reasoning = Some(reasoning).filter(|text| !text.is_empty()).map(Part::Reasoning);
    let text = Some(text).filter(|text| !text.is_empty()).map(Part::Text);
    reasoning.into_iter().chain(text).chain(calls.into_iter().map(Part::Tool)).collect()
}

/// Events with their numbers.
struct Events {
    out: Writer,
    n: u64,
}

impl Events {
    async fn send_all(&mut self, events: Vec<Value>) -> Result<(), Gone> {
        for event in events {
            self.send(event).await?;
        }
        Ok(())
    }

    async fn send(&mut self, mut event: Value) -> Result<(), Gone> {
        event["sequence_number"] = self.n.into();
        self.n += 1;
        let name = event["type"].as_str().unwrap_or("error");
        self.out.text(format!("event: {name}\ndata: {event}\n\n")).await
    }
}
