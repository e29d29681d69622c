//! The peer: how its programs are called, and how their output is read.

use super::cases::{Case, Measure, Tokens};
use super::process::{expect, number, parsed, prepared, watched};
use super::program::flags;
use std::path::{Path, PathBuf};
use std::process::Command;

/// llama.cpp: llama-bench, and llama-batched-bench beside it for sequences that decode together.
pub struct Peer {
    bench: PathBuf,
    batched: PathBuf,
    /// More flags of both: where layers are placed.
    place: &'static [&'static str],
}

/// All layers on its card, with attention in one kernel, as on the CPU by itself.
const ON_CARD: &[&str] = &["-ngl", "99", "-fa", "1"];
/// No layer on a card, which programs of 2023 else refuse without one.
const ON_CPU: &[&str] = &["-ngl", "0"];

impl Peer {
    /// The programs, by the path of the first.
    pub fn new(bench: &Path, on_card: bool) -> Peer {
        Peer::placed(bench, if on_card { ON_CARD } else { &[] })
    }

    /// PowerInfer's program, on the CPU.
    pub fn powerinfer(bench: &Path) -> Peer {
        Peer::placed(bench, ON_CPU)
    }

    fn placed(bench: &Path, place: &'static [&'static str]) -> Peer {
        Peer { bench: bench.into(), batched: bench.with_file_name("llama-batched-bench"), place }
    }

    /// Whether there is a program for a case.
    pub fn can(&self, case: Case) -> bool {
        case.sequences() == 1 || self.batched.exists()
    }

    /// One run.
    pub fn run(&self, case: Case, model: &Path, n_threads: usize, quick: bool) -> Result<Measure, String> {
        let tokens = case.tokens(quick);
        if let Case::Together { n, .. } = case {
            return self.run_together(n, tokens, model, n_threads);
        }
        let mut command = Command::new(&self.bench);
        command.args(["-o", "json", "-r", "1", "-m"]).arg(model);
        flags(&mut command, tokens, n_threads);
        command.args(self.place);
        let out = prepared(case, &mut command, model)?;
        let rows = parsed(&out.stdout)?;
        let speed =
            rows.get(0).ok_or("the peer measured nothing".to_string()).and_then(|r| number(r, "avg_ts"));
        Ok(Measure { value: out.value(case, speed)?, ..Measure::default() })
    }

    fn run_together(
        &self,
        n_sequences: usize,
        tokens: Tokens,
        model: &Path,
        n_threads: usize,
    ) -> Result<Measure, String> {
        let n_ctx = n_sequences * (tokens.depth + tokens.decode);
        let mut command = Command::new(&self.batched);
        command.args(["--output-format", "jsonl", "-m"]).arg(model);
        let numbers = [
            ("-npl", n_sequences),
            ("-npp", tokens.depth),
            ("-ntg", tokens.decode),
            ("-c", n_ctx),
            ("-t", n_threads),
        ];
        for (flag, n) in numbers {
            command.args([flag, &n.to_string()]);
        }
        command.args(self.place);
        let out = watched(&mut command)?;
        let text = String::from_utf8_lossy(&out.stdout);
        Ok(Measure { value: speed_together(&text, n_sequences, tokens, n_threads)?, ..Measure::default() })
    }
}

/// Tokens per second of all sequences, from the output of llama-batched-bench. Fails if it measured anything else than
/// llmrt: other numbers of tokens, other threads, or a prompt that all sequences share.
fn speed_together(text: &str, n: usize, tokens: Tokens, n_threads: usize) -> Result<f64, String> {
    let line = text.lines().find(|line| line.starts_with('{'));
    let found = parsed(line.ok_or("llama-batched-bench printed no JSON")?.as_bytes())?;
    expect(&found, &[("pl", n), ("pp", tokens.depth), ("tg", tokens.decode)])?;
    expect(&found, &[("is_pp_shared", 0), ("n_threads", n_threads)])?;
    number(&found, "speed_tg")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peers_speed_counts_if_it_measured_the_same() {
        let text = |shared: u32, pp: usize| {
            format!(
                "main: note\n{{\"is_pp_shared\": {shared}, \"n_threads\": 2, \"pp\": {pp}, \"tg\": 64, \"pl\": 16, \
                 \"speed_pp\": 200.5, \"speed_tg\": 120.5}}\n\nllama_perf: note\n"
            )
        };
        let tokens = Tokens { prompt: 0, decode: 64, depth: 128 };
        let speed = |text: &str| speed_together(text, 16, tokens, 2);
        assert_eq!(speed(&text(0, 128)), Ok(120.5));
        assert!(speed(&text(1, 128)).unwrap_err().contains("is_pp_shared is 1, expected 0"));
        assert!(speed(&text(0, 64)).unwrap_err().contains("pp is 64, expected 128"));
        assert!(speed("nothing").unwrap_err().contains("printed no JSON"));
    }
}
