//! HTTP over the engines of models: the routes of OpenAI, Ollama, Anthropic and llama-server, and vLLM's metrics.
//!
//! A request is read (`fields.rs`), rendered and encoded on a blocking thread, and queued in the engine of its model;
//! the engine's events arrive in a channel, without a thread per request. A client that is gone drops its channel, which
//! aborts the request within one step. [`Server::serve`] runs until a signal, then drains.
#![forbid(unsafe_code)]

mod server;

mod listen;
mod tls;

mod local;

mod options;

mod keep_alive;
mod model;
mod registry;
mod stored;

mod answer;
mod generation;
mod prompts;
mod receipt;
mod reply;
mod sampling;

mod openai;

mod ollama;

mod anthropic;

mod embeddings;

mod openapi;
mod page;

mod llama;
mod metrics;
mod props;

mod body;
mod fields;
mod stream;

mod auth;
mod error;
mod names;
mod trace;

pub use error::{Error, Result};
pub use keep_alive::{KeepAlive, parse_keep_alive};
pub use local::{Exchange, Local, News, Part};
pub use model::{Model, ModelInfo, ModelSource, Placement, Template};
pub use options::{Limits, ServerOptions};
pub use server::Server;
pub use stored::ModelStore;
pub use tls::TlsFiles;
