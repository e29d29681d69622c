//! The floor: a plain F32 forward pass in the manner of llama2.c, one token at a time. `cargo ci bench floor` times it in
//! a process of its own, as the other programs.

mod forward;
mod model;
mod tensors;
#[cfg(test)]
mod tests;

use super::cases::{Case, Measure, Tokens};
use super::process::{number, parsed, watched};
use forward::Floor;
use model::Model;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;
use tensors::Tensors;

/// Whether the floor runs a case: there are prompts and steps of one sequence at depth 0. (At depth 4096, each
/// run would take minutes.)
pub fn can(case: Case) -> bool {
    matches!(case, Case::Prompt | Case::Decode)
}

/// Whether the floor reads a file: all its tensors are F32.
pub fn reads(path: &Path) -> Result<bool, String> {
    Ok(Tensors::open(path)?.are_f32())
}

/// One run in a process of its own.
pub fn run(case: Case, model: &Path, n_threads: usize, quick: bool) -> Result<Measure, String> {
    let Tokens { prompt, decode, .. } = case.tokens(quick);
    let this = std::env::current_exe().map_err(|e| format!("this program's path: {e}"))?;
    let mut command = Command::new(this);
    command.args(["bench", "floor", "-m"]).arg(model);
    for (flag, n) in [("-p", prompt), ("-n", decode), ("-t", n_threads)] {
        command.args([flag, &n.to_string()]);
    }
    let found = parsed(&watched(&mut command)?.stdout)?;
    let key = if decode == 0 { "prompt_tok_s" } else { "decode_tok_s" };
    Ok(Measure { value: number(&found, key)?, ..Measure::default() })
}

/// `cargo ci bench floor`: times a prompt and steps at depth 0, each from an empty context, and prints JSON.
pub fn floor(words: &[&str]) -> Result<(), String> {
    let flags = Flags::parse(words)?;
    let model = Model::read(&flags.model)?;
    Floor::new(&model, flags.n_threads).step(0); // warm-up
    let speed = |n: usize| {
        let mut floor = Floor::new(&model, flags.n_threads);
        let started = Instant::now();
        for i in 0..n {
            floor.step(i * 7919 % model.n_vocab);
        }
        (n > 0).then(|| n as f64 / started.elapsed().as_secs_f64())
    };
    println!("{}", json!({ "prompt_tok_s": speed(flags.n_prompt), "decode_tok_s": speed(flags.n_decode) }));
    Ok(())
}

struct Flags {
    model: PathBuf,
    n_prompt: usize,
    n_decode: usize,
    n_threads: usize,
}

impl Flags {
    fn parse(words: &[&str]) -> Result<Flags, String> {
        let mut flags = Flags { model: PathBuf::new(), n_prompt: 512, n_decode: 128, n_threads: 1 };
        for pair in words.chunks(2) {
            let &[flag, value] = pair else {
                return Err(format!("bench floor {}: expected a value after it", pair[0]));
            };
            let count = || value.parse().map_err(|_| format!("{flag} {value}: expected a whole number"));
            match flag {
                "-m" => flags.model = value.into(),
                "-p" => flags.n_prompt = count()?,
                "-n" => flags.n_decode = count()?,
                "-t" => flags.n_threads = count()?.max(1),
                _ => return Err(format!("bench floor {flag}: expected -m, -p, -n or -t")),
            }
        }
        match flags.model.as_os_str().is_empty() {
            true => Err("bench floor: expected -m and a GGUF file in F32".into()),
            false => Ok(flags),
        }
    }
}
