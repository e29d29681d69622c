//! The command `llmrt`: parses the command line, runs one command, reports what went wrong.
#![forbid(unsafe_code)]

mod args;

mod values;

mod cmd;

mod setup;

mod backend;

mod model;

mod store;

mod remote;

mod context;

mod session;

mod generate;

mod prompt;
mod prompt_cache;

mod sampling;

mod tokens;

mod text;

mod templates;

mod new_file;

mod output;

mod progress;

mod interrupt;

mod clock;

mod error;

use args::Refusal;
use error::Exit;
use std::process::ExitCode;

fn main() -> ExitCode {
    let outcome = match args::parse(std::env::args_os()) {
        Ok((global, command, flags)) => {
            llmrt_host::signals::ignore_file_size_signal();
            // A command that ends at once at Ctrl-C leaves the signal as it is.
            let listening = if command.ends_at_once { Ok(()) } else { interrupt::listen() };
            listening.and_then(|()| (command.run)(&global, &flags))
        }
        // Help and version go to stdout, which may be full.
        Err(Refusal::Clap(e)) => match e.print() {
            Ok(()) => return ExitCode::from(if e.use_stderr() { Exit::Usage.code() } else { 0 }),
            Err(failed) => Err(failed.into()),
        },
        Err(Refusal::Foreign(e)) => Err(e),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            if e.exit != Exit::OutputClosed {
                output::error(format_args!("llmrt: {}", e.message.trim_end()));
            }
            ExitCode::from(e.exit.code())
        }
    }
}
