//! From files to weights on devices: opens model files of every kind, maps or reads them, and places each tensor.
//!
//! [`files`] finds and opens a model's files and reads their tables; [`mode`] names the ways to get at the bytes,
//! [`mapping`] and [`read`] are two of them (`lost_pages` is for files truncated later), [`mlock`] keeps them in memory; [`weights`] uses all of these to put
//! tensors on devices (`rewrite` changes those of listed rows later, `place` decides how, `storage` and `copies` move the bytes, [`seal_cache`] keeps copies between runs), and `check` checks their numbers
//! concurrently.

pub mod files;
pub mod mode;

pub mod mapping;
pub mod mlock;
pub mod read;

pub mod weights;

mod copies;
mod place;
pub mod seal_cache;
mod storage;

mod ahead;
mod bytes;
mod check;
mod dequantised;
mod host_memory;
mod lost_pages;
mod pack;
mod pieces;
mod progress;
mod rewrite;

mod error;

#[cfg(test)]
mod testing;

pub use check::check;
pub use error::{Error, Result};
pub use files::{ModelFiles, OpenOptions};
pub use mode::LoadMode;
pub use rewrite::RewriteCost;
pub use seal_cache::SealCache;
pub use weights::{LoadOptions, Placed, WeightRequest, Weights, load};
