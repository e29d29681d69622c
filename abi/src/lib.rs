//! The contract between llmrt's host and its plugins: C types, THE op table, THE dtype table, status codes.
//!
//! Everything here is plain data. `include/llmrt/plugin.h` is generated from these types and compared by a test;
//! a plugin in any language needs that header alone. Reading order: [`types`] for objects and tables,
//! [`op`] for what can be computed, [`dtype`] for what tensors hold, [`status`] for what can go wrong.
#![cfg_attr(not(feature = "layout-check"), no_std, forbid(unsafe_code))]

#[cfg(test)]
extern crate std;

pub mod code_books;
pub mod dtype;
pub mod layout;
pub mod manifest;
pub mod op;
pub mod status;
pub mod types;

pub use dtype::{DType, DTypeInfo, DTypeKind};
pub use op::{Op, OpInfo};
pub use status::{Reason, Scope, Status};

/// First eight bytes of every [`types::Plugin`]: "LLMRTPLG" read as a little-endian number.
pub const MAGIC: u64 = u64::from_le_bytes(*b"LLMRTPLG");
/// Layout generation. 0 until the contract is frozen.
pub const ABI_MAJOR: u16 = 0;
/// Semantics generation within [`ABI_MAJOR`].
pub const ABI_MINOR: u16 = 1;
/// The one symbol a plugin exports.
pub const QUERY_SYMBOL: &str = "llmrt_plugin_query_v0";
