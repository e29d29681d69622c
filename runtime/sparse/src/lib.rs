//! Files and plans of sparse inference: how often neurons fire, what predicts it, and which device computes which.
//!
//! Bytes in, tables out, like [`llmrt_gguf`]: opens no file, trusts no number, executes nothing that a file has.
#![forbid(unsafe_code)]

pub mod pt;

mod counts;
pub mod folder;
pub mod magnitudes;
mod predictor;
pub mod thresholds;
pub mod train;

pub mod index;

pub mod solve;

mod digest;
pub mod stats;

mod error;

pub use counts::Counts;
pub use digest::{ModelId, digest};
pub use error::Error;
pub use predictor::Predictor;
