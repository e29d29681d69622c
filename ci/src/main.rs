//! `cargo ci`: what continuous integration does, as commands a person can run too.

mod coverage;
mod fuzz;
mod header;
mod matrix;

use std::path::Path;
use std::process::{Command, ExitCode};

const USAGE: &str = "usage: cargo ci COMMAND

  header [--check]   write abi/include/llmrt/plugin.h, or compare it with abi/src
  bindings [--check] write plugins/cann/src/sys.rs, or compare it with plugins/cann/include; needs libclang
  cann-sim DIR       write the simulated Ascend libraries (plugins/cann/sim/README.md)
  coverage           line coverage of the parsers and the scheduler
  fuzz TARGET SECONDS
                     look for inputs that break a parser (tests/fuzz/README.md)
  matrix [--json]    the plugins, one job each
  plugin NAME        run one job of the matrix";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match args[..] {
        ["header"] => write_header(),
        ["header", "--check"] => check_header(),
        ["bindings", ref flags @ ..] => {
            run(cargo().args(["run", "--quiet", "--locked", "-p", "llmrt-bindings", "--"]).args(flags))
        }
        ["cann-sim", ref arguments @ ..] => {
            run(cargo().args(["run", "--quiet", "--locked", "-p", "llmrt-cann-sim", "--"]).args(arguments))
        }
        ["coverage"] => coverage::coverage(),
        ["fuzz", target, seconds] => fuzz::fuzz(target, seconds),
        ["matrix"] => matrix::list(false),
        ["matrix", "--json"] => matrix::list(true),
        ["plugin", name] => matrix::plugin(name),
        _ => Err(USAGE.into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("cargo ci: {message}");
            ExitCode::FAILURE
        }
    }
}

/// The repository's root.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("ci/ stands in the repository")
}

/// The cargo that runs this program, in the repository's root.
fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// Runs a command with its output shown; a non-zero exit is an error.
fn run(command: &mut Command) -> Result<(), String> {
    let status = command.status().map_err(|e| format!("{command:?}: {e}"))?;
    if status.success() { Ok(()) } else { Err(format!("{command:?}: {status}")) }
}

fn write_header() -> Result<(), String> {
    let text = header::generate(root())?;
    let path = root().join(header::HEADER);
    std::fs::write(&path, text).map_err(|e| format!("{}: {e}", header::HEADER))
}

fn check_header() -> Result<(), String> {
    let committed = std::fs::read_to_string(root().join(header::HEADER)).unwrap_or_default();
    if committed == header::generate(root())? {
        Ok(())
    } else {
        Err(format!(
            "{} differs from what abi/src gives: run `cargo ci header` and commit it",
            header::HEADER
        ))
    }
}
