//! GET /api/tags, GET /api/ps.

use crate::error::ApiError;
use crate::keep_alive::FOR_EVER;
use crate::model::ModelInfo;
use crate::names;
use crate::registry::{Entry, on_thread};
use crate::server::App;
use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};
use std::sync::Arc;

/// All models whose files can be read.
pub async fn tags(State(app): State<Arc<App>>) -> Result<Json<Value>, ApiError> {
    on_thread(move || {
        let models: Vec<Value> = app.registry.listed().iter().filter_map(|entry| row(&app, entry)).collect();
        Json(json!({ "models": models }))
    })
    .await
}

fn row(app: &App, entry: &Entry) -> Option<Value> {
    let info = entry.info().ok()?;
    let name = tagged(entry.name());
    Some(json!({
        "name": name, "model": name, "modified_at": app.utc(info.modified),
        "size": info.size, "digest": info.digest, "details": details(info),
    }))
}

/// Models that are loaded.
pub async fn ps(State(app): State<Arc<App>>) -> Result<Json<Value>, ApiError> {
    on_thread(move || {
        let models: Vec<Value> = app.registry.entries().iter().filter_map(|e| loaded_row(&app, e)).collect();
        Json(json!({ "models": models }))
    })
    .await
}

fn loaded_row(app: &App, entry: &Entry) -> Option<Value> {
    let model = entry.loaded()?;
    let info = entry.info().ok()?;
    let name = tagged(entry.name());
    let expires = names::since_1970() + entry.expires_in().unwrap_or(FOR_EVER);
    Some(json!({
        "name": name, "model": name, "size": info.size, "digest": info.digest, "details": details(info),
        "expires_at": app.utc(expires.as_secs()), "size_vram": 0, "context_length": model.n_ctx,
        "devices": model.placement.devices,
    }))
}

pub fn details(info: &ModelInfo) -> Value {
    json!({
        "parent_model": "", "format": "gguf", "family": info.architecture,
        "families": [info.architecture], "parameter_size": size(info.n_params),
        "quantization_level": info.quantization,
    })
}

/// Parameters as Ollama writes them: `7.6B`, `494.0M`, `65.8K`.
fn size(n: u64) -> String {
    let n = n as f64;
    match n {
        1e9.. => format!("{:.1}B", n / 1e9),
        1e6.. => format!("{:.1}M", n / 1e6),
        _ => format!("{:.1}K", n / 1e3),
    }
}

/// A name with its tag.
fn tagged(name: &str) -> String {
    if name.contains(':') { name.into() } else { format!("{name}:latest") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_names_are_written_as_ollama_does() {
        assert_eq!([size(7_600_000_000), size(494_032_768), size(65_800)], ["7.6B", "494.0M", "65.8K"]);
        assert_eq!([tagged("a"), tagged("a:7b")], ["a:latest", "a:7b"]);
    }

    #[test]
    fn details_have_ollamas_fields() {
        let info = ModelInfo { architecture: "llama".into(), n_params: 1_000_000, ..ModelInfo::default() };
        assert_eq!(
            details(&info).to_string(),
            r#"{"parent_model":"","format":"gguf","family":"llama","families":["llama"],"parameter_size":"1.0M","quantization_level":""}"#
        );
    }
}
