//! How a driver is loaded: found, checked without running any of its code, opened, checked again, registered.
//!
//! [`registry`] runs all steps. Before any code runs: [`search`] finds files, [`checklist`] refuses what must not be
//! opened, from [`elf`], [`manifest`] and the file's permissions (`trust`). Then [`open`] loads and `init`s the code,
//! and [`selftest`] tests every device. [`services`] is what a plugin gets from the host, [`custom`] the ops it may
//! register.

pub mod registry;

pub mod probe;

pub mod search;

pub mod checklist;
pub mod elf;
pub mod manifest;

pub(crate) mod callbacks;
pub mod custom;
pub(crate) mod lifecycle;
pub(crate) mod loaded;
pub(crate) mod open;
pub(crate) mod selftest;
pub(crate) mod services;
pub(crate) mod table;
pub(crate) mod trust;

pub use checklist::cpu_features;
pub use custom::{CustomOp, RanBy};
pub use loaded::PluginDesc;
pub use probe::Probe;
pub use registry::{Candidate, Host, HostOptions, Outcome, option_pair};
pub use search::DiscoverOptions;
pub use services::LogSink;

/// The entry of a plugin: what `llmrt_plugin_query_v0` names, or `query` of a linked plugin crate.
pub type Query = extern "C" fn(host_minor: u32) -> *const llmrt_abi::types::Plugin;
