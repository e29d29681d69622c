//! Ollama's routes over the same models.

mod generate;

mod options;

mod models;
mod show;

mod blobs;
mod create;
mod progress;
mod transfer;

use crate::embeddings;
use crate::page;
use crate::server::App;
use axum::routing::{delete, get, head, post};
use axum::{Json, Router};
use serde_json::{Value, json};
use std::sync::Arc;

/// All of them.
pub fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/", get(page::index))
        .route("/api/version", get(version))
        .route("/api/tags", get(models::tags))
        .route("/api/ps", get(models::ps))
        .route("/api/show", post(show::show))
        .route("/api/generate", post(generate::generate))
        .route("/api/chat", post(generate::chat))
        .route("/api/embed", post(embeddings::ollama))
        .route("/api/embeddings", post(embeddings::ollama_one))
        .route("/api/pull", post(transfer::pull))
        .route("/api/push", post(transfer::push))
        .route("/api/copy", post(transfer::copy))
        .route("/api/delete", delete(transfer::delete))
        .route("/api/create", post(create::create))
        .route("/api/blobs/{digest}", head(blobs::head).post(blobs::post))
}

async fn version() -> Json<Value> {
    Json(json!({ "version": env!("CARGO_PKG_VERSION") }))
}
