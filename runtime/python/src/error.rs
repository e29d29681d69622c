//! Errors as Python's exceptions: the classes are those of `llmrt.errors`.

use llmrt::Kind;
use llmrt_cli::Exit;
use pyo3::prelude::*;

/// Why a call or a request failed.
#[derive(Clone, Debug)]
pub enum Failure {
    /// What the runtime returned.
    Runtime(llmrt::Error),
    /// The engine was closed before the request had ended, or before the call.
    Closed,
    /// The process was forked while a model was open.
    Forked,
    /// A server that does not start, as the command reports it.
    Command(Exit, String),
}

impl Failure {
    /// One of the command.
    pub fn of_command(e: llmrt_cli::Error) -> Failure {
        Failure::Command(e.exit, e.message)
    }
}

impl<E: Into<llmrt::Error>> From<E> for Failure {
    fn from(e: E) -> Failure {
        Failure::Runtime(e.into())
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> PyErr {
        let (class, code, cause, remedy) = match &failure {
            Failure::Runtime(e) => {
                let about = e.describe();
                (class(about.kind), about.code, e.to_string(), about.remedy)
            }
            Failure::Closed => {
                let cause = "the engine is closed, and its requests have ended";
                ("ClosedError", "closed", cause.to_string(), "load the model again")
            }
            Failure::Command(exit, message) => {
                let (class, code) = of_exit(*exit);
                (class, code, message.clone(), "")
            }
            Failure::Forked => {
                let cause = "this process is a fork of one that had a model open, whose threads are not here";
                let remedy = "close models before a fork, or start processes with the method spawn";
                ("ForkedError", "forked", cause.to_string(), remedy)
            }
        };
        Python::attach(|py| {
            let made = py.import("llmrt.errors").and_then(|errors| errors.getattr(class));
            match made.and_then(|class| class.call1((cause, code, remedy))) {
                Ok(exception) => PyErr::from_value(exception),
                Err(e) => e,
            }
        })
    }
}

fn class(kind: Kind) -> &'static str {
    match kind {
        Kind::Model => "ModelError",
        Kind::Device => "DeviceError",
        Kind::Memory => "OutOfMemoryError",
        Kind::Request => "RequestError",
        Kind::Closed => "ClosedError",
        Kind::Defect => "Error",
    }
}

/// Class and code of a failure of the command.
fn of_exit(exit: Exit) -> (&'static str, &'static str) {
    match exit {
        Exit::Usage => ("RequestError", "bad_param"),
        Exit::File => ("ModelError", "model_file"),
        Exit::Device | Exit::Strict => ("DeviceError", "device"),
        Exit::Memory => ("OutOfMemoryError", "out_of_memory"),
        _ => ("Error", "error"),
    }
}
