//! The host: finds, checks and opens plugins, and offers what they can do as safe objects.
//!
//! Reading order: [`plugin`] for how a driver gets in, [`device`] for what it is then (devices, buffers, streams,
//! events, plans, and the graphs they run), [`threads`] for the one thread pool, `validate` for the
//! checks that `LLMRT_VALIDATE` turns on, [`knobs`] for every environment
//! variable, [`heap`] for how tests of plugins find leaks, [`system`] for what limits this process,
//! [`signals`] for what would end the process where an error value is due, [`error`] for what can go wrong.
//!
//! The front page, with an example of embedding and all crates, is [llmrt_engine](../llmrt_engine/index.html).

pub mod plugin;

pub mod device;

pub(crate) mod cancel;

pub mod threads;

pub mod load;

pub mod sched;

pub(crate) mod pool;

pub mod knobs;

pub mod heap;

pub mod system;

pub mod signals;

mod validate;

pub mod error;

pub use cancel::CancelToken;
pub use device::{
    BackendPlan, Buffer, BufferTypeDesc, Device, DeviceDesc, DeviceState, Event, Group, HostBytes,
    HostMemory, Layout, NodeDesc, PendingRead, RawGraph, RawGraphBuilder, Stream, TensorDesc,
};
pub use error::{CallError, Error, Result};
pub use plugin::{
    Candidate, CustomOp, DiscoverOptions, Host, HostOptions, LogSink, Outcome, PluginDesc, Probe, RanBy,
};
pub use pool::{PoolKind, PoolStats};
pub use threads::{Team, ThreadPool};
