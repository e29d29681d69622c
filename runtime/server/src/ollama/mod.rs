//! Ollama's routes over the same models.

mod generate;

mod options;

mod models;

use crate::error::ApiError;
use crate::page;
use crate::server::{App, no_embeddings};
use axum::http::{Method, StatusCode, Uri};
use axum::routing::{any, get, post};
use axum::{Json, Router};
use serde_json::{Value, json};
use std::sync::Arc;

/// All of them.
pub fn routes() -> Router<Arc<App>> {
    let of_store =
        ["/api/pull", "/api/push", "/api/create", "/api/copy", "/api/delete", "/api/blobs/{digest}"];
    let routes = Router::new()
        .route("/", get(page::index))
        .route("/api/version", get(version))
        .route("/api/tags", get(models::tags))
        .route("/api/ps", get(models::ps))
        .route("/api/show", post(models::show))
        .route("/api/generate", post(generate::generate))
        .route("/api/chat", post(generate::chat))
        .route("/api/embed", any(no_embeddings))
        .route("/api/embeddings", any(no_embeddings));
    of_store.into_iter().fold(routes, |routes, path| routes.route(path, any(no_store)))
}

async fn version() -> Json<Value> {
    Json(json!({ "version": env!("CARGO_PKG_VERSION") }))
}

async fn no_store(method: Method, uri: Uri) -> ApiError {
    let message = format!(
        "{method} {} is not supported: models are files that `llmrt serve NAME=FILE` names",
        uri.path()
    );
    ApiError::new(StatusCode::NOT_IMPLEMENTED, message)
}
