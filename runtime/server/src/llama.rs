//! Routes of llama-server beside generation.

use crate::error::ApiError;
use crate::fields::Fields;
use crate::prompts::Chat;
use crate::registry::on_thread;
use crate::server::App;
use axum::Json;
use axum::extract::State;
use llmrt::tokenizer::EncodeOptions;
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
pub async fn tokenize(State(app): State<Arc<App>>, fields: Fields) -> Result<Json<Value>, ApiError> {
    let lease = app.lease(&fields).await?;
    let text: String = fields.require("content")?;
    let add_special = fields.get_or("add_special", false)?;
    let parse_special = fields.get_or("parse_special", true)?;
    let with_pieces = fields.get_or("with_pieces", false)?;
    let options = EncodeOptions { add_special, parse_special };
    on_thread(move || {
        let tokenizer = &lease.model.tokenizer;
        let ids = tokenizer.encode(&text, options)?;
        let entry = |id: u32| {
            let bytes = tokenizer.token_bytes(id)?;
            Ok(json!({ "id": id, "piece": std::str::from_utf8(&bytes).map_or(json!(bytes), |s| json!(s)) }))
        };
        let tokens: Vec<Value> = match with_pieces {
            true => ids.into_iter().map(entry).collect::<Result<_, ApiError>>()?,
            false => ids.into_iter().map(Value::from).collect(),
        };
        Ok(Json(json!({ "tokens": tokens })))
    })
    .await?
}

/// POST /detokenize: `tokens`.
pub async fn detokenize(State(app): State<Arc<App>>, fields: Fields) -> Result<Json<Value>, ApiError> {
    let lease = app.lease(&fields).await?;
    let tokens: Vec<u32> = fields.require("tokens")?;
    let text = on_thread(move || lease.model.tokenizer.decode(&tokens, true)).await??;
    Ok(Json(json!({ "content": text })))
}

/// POST /apply-template: `messages`.
pub async fn apply_template(State(app): State<Arc<App>>, fields: Fields) -> Result<Json<Value>, ApiError> {
    let chat = Chat::read(&fields)?;
    let lease = app.lease(&fields).await?;
    let now = app.now();
    let prompt = on_thread(move || lease.model.render(&chat, &now).map(|(prompt, _)| prompt)).await??;
    Ok(Json(json!({ "prompt": prompt.text() })))
}
