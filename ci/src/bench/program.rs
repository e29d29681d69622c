//! llmrt as it is measured: how it is called, and how its output is read.

use super::cases::{Case, Measure, Tokens, Work};
use super::options::Card;
use super::process::{expect, number, parsed, prepared, watched};
use crate::{cargo, root, run};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;

/// llmrt, and the card that its work is for, if it is not the CPU.
pub struct Llmrt(PathBuf, Option<Card>);

/// The roofline: peak rates of this machine; 0: not measured.
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
    pub fn new(given: Option<&Path>, card: Option<&Card>) -> Result<Llmrt, String> {
        if let Some(path) = given {
            return Ok(Llmrt(path.into(), card.cloned()));
        }
        run(cargo().args(["build", "--locked", "--release", "-p", "llmrt-cli", "-p", "llmrt-cpu-so"]))?;
        Ok(Llmrt(root().join("target/release/llmrt"), card.cloned()))
    }

    /// The command without arguments.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.0);
        command.env("LLMRT_PLUGIN_PATH", "");
        command
    }

    /// Writes a file of random weights, with more flags of `llmrt synth`.
    pub fn synth(&self, like: &str, name: &str, flags: &[&str], path: &Path) -> Result<(), String> {
        run(self.command().args(["synth", "--like", like, "--type", name]).args(flags).arg(path))
    }

    /// The roofline of this many threads.
    pub fn ceilings(&self, n_threads: usize) -> Result<Ceilings, String> {
        if let Some(card) = &self.1 {
            return Ok(Ceilings { read: card.read_gb_s, f32: 0.0, int8: 0.0 });
        }
        let found = self.measured("--ceilings", n_threads)?;
        let rate = |key: &str| number(&found, key);
        Ok(Ceilings { read: rate("read_gb_s")?, f32: rate("f32_gflop_s")?, int8: rate("int8_gop_s")? })
    }

    /// What all threads read from memory in the next second, in GB/s; `None` with a card.
    pub fn reads(&self, n_threads: usize) -> Result<Option<f64>, String> {
        if self.1.is_some() {
            return Ok(None);
        }
        number(&self.measured("--ceilings=reads", n_threads)?, "read_mean_gb_s").map(Some)
    }

    /// The ceilings that a flag requests.
    fn measured(&self, flag: &str, n_threads: usize) -> Result<Value, String> {
        let threads = n_threads.to_string();
        let args = ["bench", "-p", "0", "-n", "0", flag, "--json", "-t", &threads];
        let out = watched(self.command().args(args))?;
        Ok(parsed(&out.stdout)?["ceilings"].clone())
    }

    /// One run.
    pub fn run(&self, case: Case, model: &Path, n_threads: usize, quick: bool) -> Result<Measure, String> {
        self.run_with(case, model, n_threads, quick, &[])
    }

    /// One run, with more flags of `llmrt bench`.
    pub fn run_with(
        &self,
        case: Case,
        model: &Path,
        n_threads: usize,
        quick: bool,
        more: &[&str],
    ) -> Result<Measure, String> {
        let tokens = case.tokens(quick);
        let mut command = self.command();
        command.args(["bench", "--json", "-r", "1", "-m"]).arg(model);
        flags(&mut command, tokens, n_threads);
        command.args(more);
        if let Case::Together { n, .. } = case {
            command.args(["-s", &n.to_string()]);
        }
        if let Some(Card { plugin, name, .. }) = &self.1 {
            command.arg("--plugin").arg(plugin).args(["--backend", name, "--strict-device"]);
        }
        let out = prepared(case, &mut command, model)?;
        let found = parsed(&out.stdout)?;
        let Tokens { prompt, decode, depth } = tokens;
        expect(&found, &[("n_prompt", prompt), ("n_gen", decode), ("n_depth", depth)])?;
        expect(&found, &[("sequences", case.sequences()), ("threads", n_threads)])?;
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
        Ok(Measure { value: out.value(case, speed)?, work, ..Measure::default() })
    }
}

/// Flags that llmrt and llama-bench share.
pub fn flags(command: &mut Command, tokens: Tokens, n_threads: usize) {
    // Programs like llama-bench that have no depths take the other flags.
    let depth = (tokens.depth > 0).then_some(("-d", tokens.depth));
    let numbers = [("-p", tokens.prompt), ("-n", tokens.decode), ("-b", 512), ("-t", n_threads)];
    for (flag, n) in numbers.into_iter().chain(depth) {
        command.args([flag, &n.to_string()]);
    }
}
