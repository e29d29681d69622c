//! GET /v1/models, /v1/models/{id}.

use crate::error::ApiError;
use crate::registry::on_thread;
use crate::server::App;
use axum::Json;
use axum::extract::{Path, State};
use serde_json::{Value, json};
use std::sync::Arc;

/// All models, loaded or not.
pub async fn list(State(app): State<Arc<App>>) -> Result<Json<Value>, ApiError> {
    on_thread(move || {
        let models: Vec<Value> = app.registry.listed().iter().map(|e| model(e.name(), app.started)).collect();
        Json(json!({ "object": "list", "data": models }))
    })
    .await
}

/// One model.
pub async fn one(State(app): State<Arc<App>>, Path(id): Path<String>) -> Result<Json<Value>, ApiError> {
    let entry = app.registry.find(Some(&id)).await?;
    Ok(Json(model(entry.name(), app.started)))
}

fn model(name: &str, created: u64) -> Value {
    json!({ "id": name, "object": "model", "created": created, "owned_by": "llmrt" })
}
