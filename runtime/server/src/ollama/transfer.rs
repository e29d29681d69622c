//! POST /api/pull, /api/push, /api/copy, DELETE /api/delete: the models of the store by name.

use super::progress;
use crate::error::ApiError;
use crate::fields::Fields;
use crate::registry::{Registry, on_thread};
use crate::server::App;
use crate::stored::ModelStore;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use llmrt_store::{Name, Source};
use std::sync::Arc;

/// The store of a server; an error if it has none.
pub fn store(registry: &Registry) -> Result<&ModelStore, ApiError> {
    registry.store.as_ref().ok_or_else(|| {
        let message =
            "the server has no folder for models: start it with LLMRT_MODELS, XDG_DATA_HOME or HOME";
        ApiError::new(StatusCode::NOT_IMPLEMENTED, message)
    })
}

/// `model`, or the older `name`.
pub fn name(fields: &Fields) -> Result<String, ApiError> {
    match fields.get::<String>("model")?.filter(|name| !name.is_empty()) {
        Some(name) => Ok(name),
        None if fields.value("name").is_some() => fields.require("name"),
        None => fields.require("model"),
    }
}

/// A model from a registry into the store.
pub async fn pull(State(app): State<Arc<App>>, fields: Fields) -> Result<Response, ApiError> {
    let source: Source = name(&fields)?.parse()?;
    let insecure = fields.get_or("insecure", false)?;
    let registry = app.registry.clone();
    store(&registry)?;
    progress::answer("pulling", fields.get_or("stream", true)?, move |watch| {
        let store = store(&registry)?;
        Ok((store.client)(insecure).pull(&store.store, &source, watch)?)
    })
    .await
}

/// A model of the store to a registry.
pub async fn push(State(app): State<Arc<App>>, fields: Fields) -> Result<Response, ApiError> {
    let source: Source = name(&fields)?.parse()?;
    let insecure = fields.get_or("insecure", false)?;
    let registry = app.registry.clone();
    store(&registry)?;
    progress::answer("pushing", fields.get_or("stream", true)?, move |watch| {
        let store = store(&registry)?;
        Ok((store.client)(insecure).push(&store.store, &source, watch)?)
    })
    .await
}

/// A second name for a model.
pub async fn copy(State(app): State<Arc<App>>, fields: Fields) -> Result<StatusCode, ApiError> {
    let from: Name = fields.require::<String>("source")?.parse()?;
    let to: Name = fields.require::<String>("destination")?.parse()?;
    on_thread(move || Ok(store(&app.registry)?.store.copy(&from, &to).map(|()| StatusCode::OK)?)).await?
}

/// A model out of the store. One that is loaded answers the requests it has.
pub async fn delete(State(app): State<Arc<App>>, fields: Fields) -> Result<StatusCode, ApiError> {
    let name: Name = name(&fields)?.parse()?;
    on_thread(move || {
        store(&app.registry)?.store.remove(&name)?;
        app.registry.forget(&name);
        Ok(StatusCode::OK)
    })
    .await?
}
