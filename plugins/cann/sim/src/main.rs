//! Writes a folder of libraries that stands in for the vendor's: `llmrt-cann-sim DIR [--release 9.1]`.

use std::process::ExitCode;

const USAGE: &str = "usage: cargo ci cann-sim DIR [--release RELEASE] [--without NAME,NAME]

  DIR         gets libascendcl.so, libnnopbase.so and libopapi*.so, all simulated
  --release   8.0, 8.1, 8.5, 9.0 or 9.1 (the default): which functions are there, and in which libraries;
              stub: every function answers 100039, as the toolkit's devlib does
  --without   leaves functions out";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let (dir, flags) = match args.split_first() {
        Some((dir, flags)) if !dir.starts_with('-') => (*dir, flags),
        _ => return fail(USAGE),
    };
    let (mut release, mut without) = ("9.1", "");
    for pair in flags.chunks(2) {
        match pair {
            ["--release", name] => release = name,
            ["--without", names] => without = names,
            _ => return fail(USAGE),
        }
    }
    let without: Vec<&str> = without.split(',').collect();
    match cann_simulator::install::install(dir.as_ref(), release, &without) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => fail(&problem),
    }
}

fn fail(message: &str) -> ExitCode {
    eprintln!("{message}");
    ExitCode::FAILURE
}
