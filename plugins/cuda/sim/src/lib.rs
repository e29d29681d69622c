//! A simulator of NVIDIA's driver library, to run the plugin without a card and to catch its mistakes. Its README
//! describes what it is and is not; it is loaded only where it is configured.
//!
//! Reading order: [`config`], [`world`] for the machine, [`space`] for memory, [`task`] and [`stream`] for work, [`emu`]
//! for kernels, [`product`] for cuBLASLt's, [`record`] for launches
//! that are written down, [`api`] for the functions of both libraries, [`nvrtc`] for the compiler's, [`door`]
//! for tests.

// Functions are named as the vendor names them.
#![allow(non_snake_case)]

// The same declarations that the plugin calls through.
#[path = "../../src/sys.rs"]
pub mod sys;

pub mod config;
pub mod world;

pub mod space;

pub mod stream;
pub mod task;

pub mod emu;
pub mod product;
pub mod record;

pub mod api;
pub mod nvrtc;

pub mod door;
pub mod install;
