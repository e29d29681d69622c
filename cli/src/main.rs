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

use args::{Cli, Command};
use clap::Parser;
use error::{Exit, Result};
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(&cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            if e.exit != Exit::OutputClosed {
                output::note(format_args!("llmrt: {}", e.message.trim_end()));
            }
            ExitCode::from(e.exit as u8)
        }
    }
}

fn run(cli: &Cli) -> Result<()> {
    let global = &cli.global;
    // Ctrl-C ends a worker at once.
    if let Command::ConformWorker(args) = &cli.command {
        return cmd::conform::worker(global, args);
    }
    interrupt::listen()?;
    match &cli.command {
        Command::Run(args) => cmd::run::run(global, args),
        Command::Eval(args) => cmd::eval::eval(global, args),
        Command::Bench(args) => cmd::bench::bench(global, args),
        Command::Tokenize(args) => cmd::tokenize::tokenize(args),
        Command::Detokenize(args) => cmd::tokenize::detokenize(args),
        Command::Inspect(args) => cmd::inspect::inspect(global, args),
        Command::Plan(args) => cmd::plan::plan(global, args),
        Command::Convert(args) => cmd::convert::convert(args),
        Command::Quantize(args) => cmd::quantize::quantize(global, args),
        Command::Plugins(args) => cmd::plugins::plugins(global, args),
        Command::Devices(args) => cmd::devices::devices(global, args),
        Command::Ops(args) => cmd::ops::ops(global, args),
        Command::Conform(args) => cmd::conform::conform(global, args),
        Command::ConformWorker(args) => cmd::conform::worker(global, args),
        Command::Diff(args) => cmd::diff::diff(global, args),
    }
}
