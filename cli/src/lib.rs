//! The command `llmrt`: parses the command line, runs one command, reports what went wrong. A library, so that the Python
//! package has the command too.
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

mod speculation;

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

pub use error::{Error, Exit};
pub use model::EMBEDDED;

use args::Refusal;
use clap::FromArgMatches;
use cmd::Command;
use cmd::serve::Serve;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// How the command is started again, for worker processes: a program and its first words.
static LAUNCHER: OnceLock<Vec<OsString>> = OnceLock::new();

/// The GGUF file of a model that `llmrt pull` or `llmrt create` has put into the user's store; `None`: a file has that name, or
/// there is no such model.
pub fn stored_file(name: &Path) -> Option<PathBuf> {
    store::find(name).ok().flatten().map(|model| model.gguf)
}

/// Runs the command that `words` name, the program's name first; returns the process's exit code. To be called once: signals
/// are this command's from then on.
pub fn run(words: impl IntoIterator<Item = OsString>) -> u8 {
    let outcome = match args::parse(words) {
        Ok((global, command, flags)) => {
            llmrt_host::signals::ignore_file_size_signal();
            // A command that ends at once at Ctrl-C leaves the signal as it is.
            let listening = if command.ends_at_once { Ok(()) } else { interrupt::listen() };
            listening.and_then(|()| (command.run)(&global, &flags))
        }
        // Help and version go to stdout, which may be full.
        Err(Refusal::Clap(e)) => match e.print() {
            Ok(()) => return if e.use_stderr() { Exit::Usage.code() } else { 0 },
            Err(failed) => Err(failed.into()),
        },
        Err(Refusal::Foreign(e)) => Err(e),
    };
    match outcome {
        Ok(()) => 0,
        Err(e) => {
            if e.exit != Exit::OutputClosed {
                output::error(format_args!("llmrt: {}", e.message.trim_end()));
            }
            e.exit.code()
        }
    }
}

/// The same for a program that has the command as a part: `launcher` starts that part.
pub fn run_from(launcher: Vec<OsString>, words: impl IntoIterator<Item = OsString>) -> u8 {
    LAUNCHER.get_or_init(|| launcher);
    run(words)
}

/// The server that `llmrt serve` with these words starts, for a program that has it as a part: no address is listened on, and no
/// log is started.
pub fn server(words: impl IntoIterator<Item = OsString>) -> Result<llmrt_server::Server, Error> {
    let all = ["llmrt".into(), Serve::NAME.into()].into_iter().chain(words);
    let (global, _, flags) = args::parse(all).map_err(|refusal| match refusal {
        Refusal::Clap(e) => Error::usage(e),
        Refusal::Foreign(e) => e,
    })?;
    Serve::from_arg_matches(&flags).map_err(Error::usage)?.server(&global)
}
