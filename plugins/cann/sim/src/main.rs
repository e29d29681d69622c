//! Writes a folder of libraries that stands in for the vendor's: `llmrt-cann-sim DIR [--layout split|umbrella|8.1|stub]`.

use std::process::ExitCode;

const USAGE: &str = "usage: cargo ci cann-sim DIR [--layout LAYOUT] [--without NAME,NAME]

  DIR         gets libascendcl.so, libnnopbase.so and libopapi*.so, all simulated
  --layout    split     operators in four libraries, as since 8.5 (the default)
              umbrella  operators in one library, as before
              8.1       the same, without what 8.1 lacks
              stub      every function answers 100039, as the toolkit's devlib does
  --without   leaves functions out";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let (dir, flags) = match args.split_first() {
        Some((dir, flags)) if !dir.starts_with('-') => (*dir, flags),
        _ => return fail(USAGE),
    };
    let (mut layout, mut without) = ("split", "");
    for pair in flags.chunks(2) {
        match pair {
            ["--layout", name] => layout = name,
            ["--without", names] => without = names,
            _ => return fail(USAGE),
        }
    }
    let without: Vec<&str> = without.split(',').collect();
    match cann_simulator::install::install(dir.as_ref(), layout, &without) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => fail(&problem),
    }
}

fn fail(message: &str) -> ExitCode {
    eprintln!("{message}");
    ExitCode::FAILURE
}
