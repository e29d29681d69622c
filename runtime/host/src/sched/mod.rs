//! The scheduler: which node runs on which device, what is copied, and where every tensor is.
//!
//! A graph becomes runnable in five steps, each a pure function with its own file:
//! [`legalise`] decomposes composite ops where a device requires it, [`place`] assigns every node a device (`layers`
//! distributes a model over several, by layers or by rows),
//! [`split`] cuts the node list into runs of one device with the copies between them, [`arena`] plans memory by
//! liveness, and [`bind`] makes one plan per split ([`resolve`] does the first three, [`memory`] holds what the last two
//! give out, `collectives` are calls by which devices put parts of a matrix's results together, [`limits`] is what a placement may
//! not do). [`executor`] caches the result by graph identity and runs it;
//! [`report`] describes the result.

pub mod arena;
pub mod bind;
mod collectives;
pub mod executor;
mod layers;
pub mod legalise;
pub mod limits;
pub mod memory;
pub mod place;
mod prepared;
pub mod report;
pub mod resolve;
pub mod split;
pub mod staged;

pub use collectives::Collectives;
pub use layers::SplitMode;
