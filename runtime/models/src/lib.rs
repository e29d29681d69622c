//! From a model file's tables to its compute graph. Independent of devices.
//!
//! An architecture is one file in `arch/`: it interprets its metadata and builds one graph out of `blocks/`.
//! The tensors that a model needs are found by building that graph once, so there is no second list to keep.
//!
//! The front page, with an example of embedding and all crates, is [llmrt_engine](../llmrt_engine/index.html).
#![forbid(unsafe_code)]

mod model;

mod arch;
mod blocks;

mod batch;
mod builder;
mod cache;
pub mod config;
mod input;
mod spec;

mod error;

#[cfg(test)]
mod tests;

pub use arch::{architectures, drafts_for, has_projector};
pub use batch::{BatchShape, ModelGraph, StepOutput, WindowBlocks};
pub use builder::DRAFT_PREFIX;
pub use cache::{CacheGroup, PagedLayer, StateTensor, ValueRows};
pub use config::{Config, LayerConfig, Pooling, SparseMode, SparseOptions, takes_threshold};
pub use error::{Error, Result};
pub use input::Input;
pub use model::Model;
pub use spec::{CacheKind, ModelSpec};
