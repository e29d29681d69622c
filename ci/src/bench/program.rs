//! The programs that are measured: how each is called, and what its output says.

use super::cases::{Case, Measure, TOGETHER, Tokens, Work};
use super::process::{number, parsed, prepared, watched};
use crate::{cargo, root, run};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;

/// llmrt.
pub struct Llmrt(PathBuf);

/// What the machine can do at most.
#[derive(Clone, Copy, Debug)]
pub struct Ceilings {
    /// GB/s.
    pub read: f64,
    /// GFLOP/s.
    pub f32: f64,
    /// Gop/s.
    pub int8: f64,
}

impl Ceilings {
    /// As `llmrt bench` writes them.
    pub fn json(&self) -> Value {
        json!({ "read_gb_s": self.read, "f32_gflop_s": self.f32, "int8_gop_s": self.int8 })
    }
}

impl Llmrt {
    /// The given program, else the one of this tree, built for release together with the CPU plugin.
    pub fn new(given: Option<&Path>) -> Result<Llmrt, String> {
        if let Some(path) = given {
            return Ok(Llmrt(path.into()));
        }
        run(cargo().args(["build", "--locked", "--release", "-p", "llmrt", "-p", "llmrt-cpu-so"]))?;
        Ok(Llmrt(root().join("target/release/llmrt")))
    }

    /// The command without arguments.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.0);
        command.env("LLMRT_PLUGIN_PATH", "");
        command
    }

    /// Writes a file of random weights. The mix named MXFP4 has it in experts alone, so here all matrices get it.
    pub fn synth(&self, like: &str, name: &str, path: &Path) -> Result<(), String> {
        let pure = (name == "mxfp4").then_some("--pure");
        run(self.command().args(["synth", "--like", like, "--type", name]).args(pure).arg(path))
    }

    /// What the machine can do with so many threads.
    pub fn ceilings(&self, n_threads: usize) -> Result<Ceilings, String> {
        let threads = n_threads.to_string();
        let args = ["bench", "-p", "0", "-n", "0", "--ceilings", "--json", "-t", &threads];
        let out = watched(self.command().args(args))?;
        let found = parsed(&out.stdout)?;
        let rate = |key: &str| number(&found["ceilings"], key);
        Ok(Ceilings { read: rate("read_gb_s")?, f32: rate("f32_gflop_s")?, int8: rate("int8_gop_s")? })
    }

    /// One run.
    pub fn run(&self, case: Case, model: &Path, n_threads: usize, quick: bool) -> Result<Measure, String> {
        let tokens = case.tokens(quick);
        let mut command = self.command();
        command.args(["bench", "--json", "-r", "1", "-m"]).arg(model);
        flags(&mut command, tokens, n_threads);
        if case == Case::Together {
            command.args(["-s", &TOGETHER.to_string()]);
        }
        let out = prepared(case, &mut command, model)?;
        let found = parsed(&out.stdout)?;
        let speed = match tokens.prompt {
            0 => number(&found, "decode_tok_s"),
            _ => number(&found, "prompt_tok_s"),
        };
        let (n_bytes, n_params) = (number(&found, "model_bytes")?, number(&found, "n_params")?);
        let work = Work {
            read_bytes: number(&found, "read_bytes_per_step")?,
            mul_adds: number(&found, "mul_adds_per_token")?,
            kv_bytes: number(&found, "kv_bytes_per_token")?,
            is_quantised: n_bytes / n_params < 1.9,
        };
        Ok(Measure { value: out.value(case, speed)?, work })
    }
}

/// llama.cpp: llama-bench, and llama-batched-bench beside it for sequences that decode together.
pub struct Peer {
    bench: PathBuf,
    batched: PathBuf,
}

impl Peer {
    /// The programs, by the path of the first.
    pub fn new(bench: &Path) -> Peer {
        Peer { bench: bench.into(), batched: bench.with_file_name("llama-batched-bench") }
    }

    /// Whether there is a program for a case.
    pub fn can(&self, case: Case) -> bool {
        case != Case::Together || self.batched.exists()
    }

    /// One run.
    pub fn run(&self, case: Case, model: &Path, n_threads: usize, quick: bool) -> Result<Measure, String> {
        let tokens = case.tokens(quick);
        if case == Case::Together {
            return self.run_together(tokens, model, n_threads);
        }
        let mut command = Command::new(&self.bench);
        command.args(["-o", "json", "-r", "1", "-m"]).arg(model);
        flags(&mut command, tokens, n_threads);
        let out = prepared(case, &mut command, model)?;
        let rows = parsed(&out.stdout)?;
        let speed =
            rows.get(0).ok_or("the peer measured nothing".to_string()).and_then(|r| number(r, "avg_ts"));
        Ok(Measure { value: out.value(case, speed)?, work: Work::default() })
    }

    fn run_together(&self, tokens: Tokens, model: &Path, n_threads: usize) -> Result<Measure, String> {
        let n_ctx = TOGETHER * (tokens.depth + tokens.decode);
        let mut command = Command::new(&self.batched);
        command.args(["--output-format", "jsonl", "-m"]).arg(model);
        let numbers = [
            ("-npl", TOGETHER),
            ("-npp", tokens.depth),
            ("-ntg", tokens.decode),
            ("-c", n_ctx),
            ("-t", n_threads),
        ];
        for (flag, n) in numbers {
            command.args([flag, &n.to_string()]);
        }
        let out = watched(&mut command)?;
        let text = String::from_utf8_lossy(&out.stdout);
        let line =
            text.lines().find(|line| line.starts_with('{')).ok_or("llama-batched-bench printed no JSON")?;
        Ok(Measure { value: number(&parsed(line.as_bytes())?, "speed_tg")?, work: Work::default() })
    }
}

/// Flags that both programs share.
fn flags(command: &mut Command, tokens: Tokens, n_threads: usize) {
    let numbers =
        [("-p", tokens.prompt), ("-n", tokens.decode), ("-d", tokens.depth), ("-b", 512), ("-t", n_threads)];
    for (flag, n) in numbers {
        command.args([flag, &n.to_string()]);
    }
}
