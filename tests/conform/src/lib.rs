//! Conformance of plugins: what a driver is tested with before anybody relies on it.
//!
//! Reading order: [`catalogue`] for which cases there are, [`runner`] for how they are run (each in a worker process,
//! [`child`] and [`worker`]), then the cases by level, `l0_load` to `l6_perf`, and `pools`. [`problem`] is one node with its
//! operands, [`stage`] where it is tested, [`compare`] how it is judged. [`report`] and [`support`] show the results of
//! it. [`diff`] compares two devices on a model; [`repro`] keeps what it finds.
#![forbid(unsafe_code)]

pub mod catalogue;
pub mod level;

pub mod runner;

pub mod child;
pub mod protocol;
pub mod session;
pub mod worker;

mod l0_load;
mod l1_layouts;
mod l1_leaks;
mod l1_memory;
mod l1_seal;
mod l1_sharing;
mod l2_collectives;
mod l2_events;
mod l2_sticky;
mod l2_streams;
mod l3_again;
mod l3_ops;
mod l4_plans;
mod l5_faults;
mod l5_nodes;
mod l5_strides;
mod l5_versions;
mod l6_perf;
mod l6_rows;
mod pools;

pub mod compare;
mod growth;
pub mod problem;
mod products;
mod raw;
mod stage;
mod work;

pub mod outcome;

pub mod report;
pub mod support;

mod budget;
pub mod diff;
pub mod recorded;
pub mod repro;

pub use catalogue::{Entry, Selection};
pub use child::Launch;
pub use level::Level;
pub use outcome::Outcome;
pub use report::Report;
pub use runner::Run;
pub use session::Options;
