//! The native module of the Python package `llmrt`: an engine and its streams, a tokenizer, a server without a socket, what
//! devices there are, and the command. The package's own Python (`python/llmrt`) has the names that people use.
#![forbid(unsafe_code)]

mod engine;
mod error;
mod fork;
mod interrupt;
mod mailbox;
mod present;
mod progress;
mod request;
mod server;
mod settings;
mod snapshot;
mod stream;
mod tokenizer;

use pyo3::prelude::*;
use std::ffi::OsString;

/// `llmrt._llmrt`; `python/llmrt/_llmrt.pyi` has the signatures.
#[pymodule]
mod _llmrt {
    #[pymodule_export]
    use super::command;
    #[pymodule_export]
    use super::engine::Engine;
    #[pymodule_export]
    use super::mailbox::Mailbox;
    #[pymodule_export]
    use super::present::{devices, plugins};
    #[pymodule_export]
    use super::server::{Exchange, Server};
    #[pymodule_export]
    use super::stream::Stream;
    #[pymodule_export]
    use super::tokenizer::Tokenizer;

    #[pymodule_export]
    #[allow(non_upper_case_globals)]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}

/// Runs the command `llmrt`, which `launcher` starts in another process; returns its exit code. Signals are the command's from
/// then on.
#[pyfunction]
fn command(py: Python<'_>, launcher: Vec<OsString>, words: Vec<OsString>) -> u8 {
    py.detach(|| llmrt_cli::run_from(launcher, words))
}
