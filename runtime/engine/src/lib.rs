//! Requests to tokens: sequences, the paged cache's blocks, the scheduler, batches, sampling, stopping and timings.
//!
//! A step goes: [`schedule()`] says which sequences get how many tokens, [`Batch::new`] writes that down as the
//! arrays a graph reads, the host runs the graph, a [`Sampler`] picks a token from each row of logits, and a
//! [`StopFilter`] says which text may be shown. All of it is pure: no device, no clock, no I/O.
#![forbid(unsafe_code)]

pub mod batch;
pub mod blocks;
mod deployment;
pub mod device_topk;
pub mod engine;
mod error;
pub mod memory;
pub mod metrics;
mod program;
mod recover;
pub mod sampler;
pub mod schedule;
pub mod sequence;
pub mod stop;

pub use batch::{Batch, Logits, OutputRow};
pub use blocks::{BlockId, BlockPool, BlockTable};
pub use engine::{Engine, EngineOptions, Step};
pub use error::{Error, Result};
pub use memory::MemoryPlan;
pub use metrics::Timings;
pub use sampler::{Row, Sampler, SamplingParams};
pub use schedule::{Budget, StepPlan, schedule};
pub use sequence::{Sequence, SequenceId, TokenId};
pub use stop::{Finish, StopFilter, Streamed};
