//! Text from a model in a few lines: devices, model, tokenizer and engine together.
//!
//! ```
//! use llmrt::{Llm, Params};
//!
//! let llm = Llm::open("../../cli/assets/stories.gguf")?;
//! let text = llm.generate("Once upon a time", &Params { max_tokens: Some(24), ..Params::greedy() })?;
//! assert!(text.split_whitespace().count() > 4, "{text}");
//! # Ok::<(), llmrt::Error>(())
//! ```
//!
//! An [`Llm`] has the devices of the plugins that are found, the CPU last, and an engine on a thread of its own:
//! [`Llm::generate`] may be called from any number of threads, and their texts are computed in the same steps. Each step of the
//! way is public: [`Llm::request`] makes a request to change before [`Llm::submit`], whose stream gives the text token by
//! token; [`Options`] has the sizes; [`host`], [`engine`] and [`tokenizer`] are the crates below.
#![forbid(unsafe_code)]

mod describe;
mod drafts;
mod error;
mod llm;
mod options;
mod params;
mod present;
mod tables;

pub use describe::{Description, Kind};
pub use drafts::{DraftSource, Drafts};
pub use error::{Error, Result};
pub use llm::Llm;
pub use llmrt_abi::DType;
pub use llmrt_engine as engine;
pub use llmrt_engine::{EngineEvent, EngineOptions, Request, RequestOutput, RequestStream, SamplingParams};
pub use llmrt_host as host;
pub use llmrt_tokenizer as tokenizer;
pub use llmrt_tokenizer::Message;
pub use options::{LoadProgress, Options};
pub use params::Params;
pub use present::Present;
pub use tables::TextTables;
