//! POST /v1/messages of Anthropic, streamed or not.

mod blocks;
mod read;

use crate::error::ApiError;
use crate::fields::Fields;
use crate::names;
use crate::reply::{News, Reply};
use crate::server::App;
use crate::stream::{self, Gone, Writer};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use blocks::Blocks;
use llmrt::engine::Finish;
use serde_json::{Value, json};
use std::sync::Arc;

/// The route.
pub fn routes() -> Router<Arc<App>> {
    Router::new().route("/v1/messages", post(route))
}

async fn route(State(app): State<Arc<App>>, fields: Fields) -> Result<Response, ApiError> {
    let (request, chat) = read::call(&fields)?;
    let stream = fields.get_or("stream", false)?;
    let lease = app.lease(fields.get::<String>("model")?.as_deref()).await?;
    let job = Job { reply: Reply::start(&app, lease, request, chat).await?, id: names::id("msg") };
    Ok(match stream {
        true => stream::events(|out| job.stream(out)),
        false => Json(job.complete().await?).into_response(),
    })
}

/// An answer, ready to be computed.
struct Job {
    reply: Reply,
    id: String,
}

impl Job {
    /// The whole answer.
    async fn complete(mut self) -> Result<Value, ApiError> {
        let (parts, finish) = self.reply.whole().await?;
        let mut message = self.message(blocks::whole(&parts));
        let (reason, sequence) = stop_reason(&finish, parts.calls.len());
        message["stop_reason"] = reason.into();
        message["stop_sequence"] = sequence;
        message["usage"] = self.usage();
        Ok(message)
    }

    fn message(&self, content: Vec<Value>) -> Value {
        let Reply { model, n_prompt, .. } = &self.reply;
        json!({
            "id": self.id, "type": "message", "role": "assistant", "model": model, "content": content,
            "stop_reason": null, "stop_sequence": null,
            "usage": { "input_tokens": n_prompt, "output_tokens": 0 },
        })
    }

    fn usage(&self) -> Value {
        let usage = self.reply.usage();
        json!({
            "input_tokens": usage.n_prompt - usage.n_cached, "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": usage.n_cached, "output_tokens": usage.n_generated,
        })
    }

    /// The answer in events: each block of content begins, grows and ends.
    async fn stream(mut self, out: Writer) -> Result<(), Gone> {
        let start = json!({ "type": "message_start", "message": self.message(Vec::new()) });
        send(&out, &[start]).await?;
        let mut blocks = Blocks::default();
        send(&out, &blocks.text(&self.reply.opening)).await?;
        let mut finish = Finish::Eos;
        loop {
            let News { parts, finish: ended } = match self.reply.next().await {
                Ok(Some(news)) => news,
                Ok(None) => break,
                Err(e) => return send(&out, &[e.anthropic()]).await,
            };
            for part in parts {
                send(&out, &blocks.part(part)).await?;
            }
            finish = ended.unwrap_or(finish);
        }
        send(&out, &blocks.end()).await?;
        let (reason, sequence) = stop_reason(&finish, self.reply.n_calls());
        let delta = json!({ "stop_reason": reason, "stop_sequence": sequence });
        let last = json!({ "type": "message_delta", "delta": delta, "usage": self.usage() });
        send(&out, &[last, json!({ "type": "message_stop" })]).await
    }
}

/// Events with their names.
async fn send(out: &Writer, events: &[Value]) -> Result<(), Gone> {
    for event in events {
        let name = event["type"].as_str().unwrap_or("error");
        out.text(format!("event: {name}\ndata: {event}\n\n")).await?;
    }
    Ok(())
}

/// `stop_reason` and `stop_sequence`.
fn stop_reason(finish: &Finish, n_calls: usize) -> (&'static str, Value) {
    match finish {
        Finish::Length => ("max_tokens", Value::Null),
        Finish::Stop(text) => ("stop_sequence", text.as_str().into()),
        _ if n_calls > 0 => ("tool_use", Value::Null),
        _ => ("end_turn", Value::Null),
    }
}
