//! What must hold for every input of the parsers, as functions of bytes: fuzz targets and mutation tests call them.
//!
//! A check panics where a promise is broken. Built with the flags of `cargo ci fuzz`, a target is a libFuzzer program;
//! built without them it runs the files that it is given, once each, so that a crash can be looked at.
#![forbid(unsafe_code)]

pub mod checks;
pub mod samples;

use std::fmt::Display;

/// A parser under test.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name: the program is `fuzz-NAME`.
    pub name: &'static str,
    /// Panics if these bytes break a promise.
    pub check: fn(&[u8]),
    /// Good inputs to start from.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// All of them.
pub const TARGETS: [Target; 12] = [
    checks::gguf::TARGET,
    checks::checkpoint::TARGET,
    checks::tokenizer_bin::TARGET,
    checks::vocab::TARGET,
    checks::text::TARGET,
    checks::chat::TARGET,
    checks::model::TARGET,
    checks::overrides::TARGET,
    checks::plugin::TARGET,
    checks::torch::TARGET,
    checks::neuron_index::TARGET,
    checks::sparse_file::TARGET,
];

/// The result; an error must have a message.
pub fn accepted<T, E: Display>(result: Result<T, E>) -> Option<T> {
    match result {
        Ok(accepted) => Some(accepted),
        Err(refusal) => {
            assert!(!refusal.to_string().trim().is_empty(), "an error without a message");
            None
        }
    }
}

/// The `main` of the fuzz target for the module of that name in [`checks`].
#[macro_export]
macro_rules! target {
    ($name:ident) => {
        // Panics that a parser catches are not crashes, so the hook that makes them so is taken out; a panic that
        // leaves the target ends the process all the same.
        #[cfg(fuzzing)]
        libfuzzer_sys::fuzz_target!(
            init: std::panic::set_hook(Box::new(|panic| eprintln!("{panic}"))),
            |data: &[u8]| { $crate::checks::$name::check(data) }
        );

        #[cfg(not(fuzzing))]
        fn main() -> std::process::ExitCode {
            $crate::replay(&$crate::checks::$name::TARGET)
        }
    };
}

/// Runs the files named on the command line, once each.
pub fn replay(target: &Target) -> std::process::ExitCode {
    let files: Vec<_> = std::env::args_os().skip(1).collect();
    if files.is_empty() {
        eprintln!(
            "usage: fuzz-{} FILE...   runs each file once; `cargo ci fuzz` looks for new ones",
            target.name
        );
        return std::process::ExitCode::from(2);
    }
    for file in files {
        let bytes = match std::fs::read(&file) {
            Ok(bytes) => bytes,
            Err(e) => {
                eprintln!("{}: {e}", file.display());
                return std::process::ExitCode::FAILURE;
            }
        };
        (target.check)(&bytes);
        eprintln!("{}: {} bytes, no promise broken", file.display(), bytes.len());
    }
    std::process::ExitCode::SUCCESS
}

#[cfg(test)]
mod tests {
    use super::*;
    use llmrt_gguf::mutate::mutate;

    /// Runs the seeds of a target, and 150 spoiled copies of each.
    fn check(target: &Target) {
        for seed in (target.seeds)() {
            (target.check)(&seed);
            for i in 0..150 {
                let mut spoiled = seed.clone();
                mutate(&mut spoiled, i);
                (target.check)(&spoiled);
            }
        }
        (target.check)(b"");
    }

    #[test]
    fn every_target_survives_its_seeds_and_their_spoiled_copies() {
        std::thread::scope(|s| {
            for target in &TARGETS {
                s.spawn(move || check(target));
            }
        });
    }
}
