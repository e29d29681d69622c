//! The command `llmrt`: parses the command line, runs one command, tells what went wrong.
#![forbid(unsafe_code)]

mod args;

mod values;

mod cmd;

mod setup;

mod backend;

mod model;

mod context;

mod session;

mod generate;

mod sampling;

mod tokens;

mod text;

mod new_file;

mod output;

mod progress;

mod interrupt;

mod clock;

mod error;

use error::{Error, Exit};
use std::process::ExitCode;

fn main() -> ExitCode {
    let (global, command, flags) = args::parse(std::env::args_os()).unwrap_or_else(|e| e.exit());
    // A command that ends at once at Ctrl-C leaves the signal as it is.
    let listening = if command.ends_at_once { Ok(()) } else { interrupt::listen() };
    match listening.and_then(|()| (command.run)(&global, &flags)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Error { exit: Exit::OutputClosed, .. }) => ExitCode::SUCCESS,
        Err(e) => {
            output::note(format_args!("llmrt: {}", e.message.trim_end()));
            ExitCode::from(e.exit as u8)
        }
    }
}
