//! GET /v1/models, /v1/models/{id}.

use crate::error::ApiError;
use crate::server::App;
use axum::Json;
use axum::extract::{Path, State};
use serde_json::{Value, json};
use std::sync::Arc;

/// All models, loaded or not.
pub async fn list(State(app): State<Arc<App>>) -> Json<Value> {
    let models: Vec<Value> = app.registry.entries().iter().map(|e| model(e.name(), app.started)).collect();
    Json(json!({ "object": "list", "data": models }))
}

/// One model.
pub async fn one(State(app): State<Arc<App>>, Path(id): Path<String>) -> Result<Json<Value>, ApiError> {
    let entry = app.registry.find(Some(&id))?;
    Ok(Json(model(entry.name(), app.started)))
}

fn model(name: &str, created: u64) -> Value {
    json!({ "id": name, "object": "model", "created": created, "owned_by": "llmrt" })
}
