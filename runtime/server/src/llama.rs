//! Routes of llama-server beside generation.

use crate::error::ApiError;
use crate::fields::Fields;
use crate::prompts::Chat;
use crate::registry::on_thread;
use crate::server::App;
use axum::Json;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use llmrt::tokenizer::{EncodeOptions, Tokenizer};
use serde_json::{Value, json};
use std::sync::Arc;

/// GET /health.
pub async fn health() -> Json<Value> {
    Json(json!({ "status": "ok" }))
}

/// GET /slots: as many as run at a time, of each loaded model. The engine has no fixed slots: the first `n_running` process.
pub async fn slots(State(app): State<Arc<App>>) -> Json<Value> {
    let mut slots = Vec::new();
    for entry in &app.registry.entries() {
        let Some(model) = entry.loaded() else { continue };
        let n_running = model.engine.stats().n_running;
        slots.extend((0..app.options.parallel).map(|id| {
            json!({ "id": id, "model": entry.name(), "n_ctx": model.n_ctx, "is_processing": id < n_running })
        }));
    }
    Json(slots.into())
}

/// POST /tokenize: `content`, `add_special`, `parse_special`, `with_pieces`.
pub async fn tokenize(State(app): State<Arc<App>>, fields: Fields) -> Result<Response, ApiError> {
    let lease = app.lease(&fields).await?;
    let text: String = fields.require("content")?;
    let add_special = fields.get_or("add_special", false)?;
    let parse_special = fields.get_or("parse_special", true)?;
    let with_pieces = fields.get_or("with_pieces", false)?;
    let options = EncodeOptions { add_special, parse_special };
    on_thread(move || {
        let tokenizer = &lease.model.tokenizer;
        let ids = tokenizer.encode(&text, options)?;
        // Written as text: as values, the objects of a large request take a thousand times its bytes.
        let mut body = String::from("{\"tokens\":[");
        for (i, id) in ids.into_iter().enumerate() {
            body += if i == 0 { "" } else { "," };
            body += &if with_pieces { piece(tokenizer, id)? } else { id.to_string() };
        }
        body += "]}";
        Ok(([(CONTENT_TYPE, "application/json")], body).into_response())
    })
    .await?
}

/// A token with its text, or its bytes if they are no text.
fn piece(tokenizer: &Tokenizer, id: u32) -> Result<String, ApiError> {
    let bytes = tokenizer.token_bytes(id)?;
    let piece = std::str::from_utf8(&bytes).map_or(json!(bytes), |text| json!(text));
    Ok(format!("{{\"id\":{id},\"piece\":{piece}}}"))
}

/// POST /detokenize: `tokens`.
pub async fn detokenize(State(app): State<Arc<App>>, fields: Fields) -> Result<Json<Value>, ApiError> {
    let lease = app.lease(&fields).await?;
    let tokens: Vec<u32> = fields.require("tokens")?;
    let text = on_thread(move || lease.model.tokenizer.decode(&tokens, true)).await??;
    Ok(Json(json!({ "content": text })))
}

/// POST /apply-template: `messages`, `tools`, `chat_template_kwargs`, `add_generation_prompt`.
pub async fn apply_template(State(app): State<Arc<App>>, fields: Fields) -> Result<Json<Value>, ApiError> {
    let chat = Chat::read(&fields)?;
    let lease = app.lease(&fields).await?;
    let now = app.now();
    let prompt = on_thread(move || lease.model.render(&chat, &now).map(|(prompt, _)| prompt)).await??;
    Ok(Json(json!({ "prompt": prompt.text() })))
}
