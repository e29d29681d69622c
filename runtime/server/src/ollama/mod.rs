//! Ollama's routes over the same models.

use crate::server::App;
use axum::Router;
use std::sync::Arc;

/// All of them.
pub fn routes() -> Router<Arc<App>> {
    Router::new()
}
