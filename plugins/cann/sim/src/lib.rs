//! A simulator of Huawei's Ascend libraries, to run the plugin without a card and to catch its mistakes. Its README
//! describes what it is and is not; it is loaded only where it is configured.
//!
//! Reading order: [`config`], [`world`] for the machine, [`memory`], [`runtime`] for what acl* functions do, [`hccl`] for collectives, [`object`]
//! and [`plan`] for tensors and the two phases of an operator, [`view`] for how kernels see memory, [`ops`], and
//! [`door`] for tests.

// Functions and their outputs are called as the vendor calls them.
#![allow(non_snake_case)]

// The same declarations that the plugin calls through.
#[path = "../../src/sys.rs"]
pub mod sys;

pub mod config;
pub mod fault;
pub mod world;

pub mod address;
pub mod chip;
pub mod memory;
pub mod release;
pub mod span;

pub mod table;
pub mod trace;
pub mod traffic;

pub mod hccl;
pub mod runtime;

pub mod object;
pub mod tensor;

pub mod args;
pub mod plan;
pub mod repeat;

pub mod number;
pub mod view;

pub mod ops;

pub mod door;
pub mod install;
