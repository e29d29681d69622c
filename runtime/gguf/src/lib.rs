//! Bytes in, tables out: GGUF files of version 2 and 3, PowerInfer's variant, split models, llama2.c checkpoints.
//!
//! Opens no file and trusts no number: every count is held against the bytes that could carry it.
//!
//! The front page, with an example of embedding and all crates, is [llmrt_engine](../llmrt_engine/index.html).
#![forbid(unsafe_code)]

mod header;
mod metadata;
mod overrides;
mod value;

mod split;
mod tensor;

mod reader;
pub mod writer;

pub mod checkpoint;
mod sniff;

mod error;
#[doc(hidden)]
pub mod mutate;
mod nearest;
mod printable;

#[cfg(test)]
mod tests;

pub use error::Error;
pub use header::{ALIGNMENT_KEY, DEFAULT_ALIGNMENT, Flavour, Gguf, NEURON_INDEX_ARCH};
pub use metadata::{FromValue, Metadata};
pub use nearest::{n_edits, nearest};
pub use printable::{is_terminal_control, printable, printable_lines, printable_name, printable_path};
pub use sniff::{FileKind, sniff};
pub use split::{Model, SplitInfo, SplitName, merge};
pub use tensor::{TensorInfo, TensorShape};
pub use value::{Array, Value, ValueType};
