//! Requests to tokens: queues, the paged cache's blocks, the scheduler, batches, sampling, stopping and timings.
//!
//! An [`EngineCore`] has one loop for every program. In a step its [`scheduler`] gives each sequence its tokens,
//! [`Batch::new`] writes the arrays that the graph reads, a [`DeviceRunner`] executes it, a [`Sampler`] picks a token from each
//! row of logits, and a [`StopFilter`] holds back text that may become a stop string. All but the runner is pure: no device,
//! no clock, no I/O. An [`AsyncEngine`] is a core on a thread of its own, for programs that wait for many requests at once.
//!
//! # Embedding
//!
//! A program needs this crate, `llmrt-host` for devices and files, `llmrt-tokenizer` for text, and `llmrt-cpu` as the
//! baseline device, which supports every op. `Host::discover` adds the devices of plugin files. More is in
//! `docs/guide/embed.md`.
//!
//! ```
//! use llmrt_engine::{DeviceRunner, EngineEvent, EngineOptions, Request};
//! use llmrt_host::load::{LoadOptions, ModelFiles, OpenOptions};
//! use llmrt_host::{Host, HostOptions};
//! use llmrt_tokenizer::{EncodeOptions, Tokenizer};
//! use std::path::Path;
//! use std::sync::Arc;
//!
//! // Devices, first choice first and the baseline last. Here: the CPU alone.
//! let host = Host::new(HostOptions::default());
//! host.register_builtin(llmrt_cpu::query)?;
//! let devices = host.devices();
//!
//! // The model: its tables, its tokenizer, and its weights on the devices.
//! let files = ModelFiles::open(Path::new("../../cli/assets/stories.gguf"), &OpenOptions::default())?;
//! let tokenizer = Arc::new(Tokenizer::from_metadata(&files.model.metadata)?);
//! let load = LoadOptions::default();
//! let options = EngineOptions { n_ctx: 128, ..EngineOptions::default() };
//! let runner = DeviceRunner::new(&host, devices, files, load, options)?;
//!
//! // One request: prefill, then a token per step.
//! let mut core = runner.into_core(Some(tokenizer.clone()))?;
//! let prompt = tokenizer.encode("Once upon a time", EncodeOptions::default())?;
//! core.add(Request { max_tokens: Some(16), ..Request::greedy(prompt) })?;
//! let mut text = String::new();
//! while !core.is_idle() {
//!     for event in core.step()? {
//!         match event {
//!             EngineEvent::Token { token, .. } => text += &token.text,
//!             EngineEvent::Failed { error, .. } => return Err(error.into()),
//!             _ => {}
//!         }
//!     }
//! }
//! assert!(text.split_whitespace().count() > 4, "{text}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The other crates
//!
//! [llmrt_host](../llmrt_host/index.html): plugins, devices, loading, placement and execution;
//! [llmrt_models](../llmrt_models/index.html): graphs of architectures; [llmrt_graph](../llmrt_graph/index.html): ops;
//! [llmrt_gguf](../llmrt_gguf/index.html): files; [llmrt_tokenizer](../llmrt_tokenizer/index.html): text;
//! [llmrt_abi](../llmrt_abi/index.html): the contract; [llmrt_plugin](../llmrt_plugin/index.html): the kit for plugins.
#![forbid(unsafe_code)]

mod bad_words;
pub mod batch;
pub mod beam;
pub mod core;
mod deployment;
pub mod device_topk;
mod error;
pub mod handle;
pub mod kv;
pub mod logprobs;
pub mod memory;
pub mod metrics;
pub mod neurons;
pub mod options;
pub mod output;
mod program;
mod programs;
pub mod request;
pub mod runner;
pub mod sampler;
pub mod scheduler;
pub mod sequence;
mod sparse;
pub mod speculation;
pub mod stats;
pub mod stop;
pub mod tensor_rules;
pub mod work;

pub use crate::core::{EngineCore, EngineEvent, RequestOutput};
pub use batch::{Batch, OutputRow, PagedArrays};
pub use error::{Error, Result};
pub use handle::{AsyncEngine, EventSink, RequestGuard, RequestStream};
pub use kv::pool::{BlockId, BlockPool};
pub use kv::pools::CachePools;
pub use kv::prefix::BlockHash;
pub use kv::state::{CacheRows, KvState};
pub use kv::table::BlockTable;
pub use llmrt_models::Pooling;
pub use memory::MemoryPlan;
pub use metrics::Timings;
pub use options::EngineOptions;
pub use request::{Decoding, Request, RequestId};
pub use runner::DeviceRunner;
pub use sampler::{Row, Sampler, SamplingParams};
pub use sequence::{Sequence, SequenceId, TokenId};
pub use stats::EngineStats;
pub use stop::{Finish, StopFilter, Streamed};
pub use work::Work;
