//! The command `llmrt`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(llmrt_cli::run(std::env::args_os()))
}
