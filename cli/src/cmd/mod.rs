//! The commands, one file each.

pub mod run;

pub mod chat;
pub mod llama2c;

pub mod eval;

pub mod bench;

pub mod tokenize;

pub mod inspect;
pub mod plan;

pub mod convert;
pub mod quantize;

pub mod devices;
pub mod ops;
pub mod plugins;

pub mod conform;
pub mod diff;
