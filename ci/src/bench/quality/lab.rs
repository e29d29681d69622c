//! The programs, the text and the models that types of weights are judged with.

use super::compared::{Found, Row};
use crate::bench::options::has_long_blocks;
use crate::bench::padded;
use crate::bench::process::{number, parsed, watched};
use crate::bench::program::Llmrt;
use crate::root;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Stories in a part, windows that are read of it, tokens of a window.
const STORIES: usize = 14;
const WINDOWS: &str = "20";
const WINDOW: &str = "128";

/// The programs, the text, and the models in F32.
pub struct Lab<'p> {
    llmrt: Llmrt,
    peer: &'p Path,
    dir: PathBuf,
    n_parts: usize,
}

impl Lab<'_> {
    /// Makes the models in F32 and the text, and lets the peer write its bases.
    pub fn new(llmrt: Llmrt, peer: &Path, n_parts: usize) -> Result<Lab<'_>, String> {
        let dir = root().join("target/bench/quality");
        std::fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        let lab = Lab { llmrt, peer, dir, n_parts };
        lab.quantise(&root().join("cli/assets/stories.gguf"), &lab.base(false), "f32")?;
        padded::write(&lab.base(false), &lab.base(true))?;
        for part in 0..n_parts {
            lab.write_text(part)?;
            for is_long in [false, true] {
                lab.run_peer(&lab.base(is_long), part, is_long, &[])?;
            }
        }
        Ok(lab)
    }

    /// The model in F32, or the one with longer rows.
    fn base(&self, is_long: bool) -> PathBuf {
        self.dir.join(if is_long { "long-f32.gguf" } else { "f32.gguf" })
    }

    fn text(&self, part: usize) -> PathBuf {
        self.dir.join(format!("stories-{part}.txt"))
    }

    /// The embedded model writes what it is measured with.
    fn write_text(&self, part: usize) -> Result<(), String> {
        let mut text = String::new();
        for i in 0..STORIES {
            let begin = ["Once upon a time", "Long ago", "Deep in the forest"][i % 3];
            let seed = (part * STORIES + i).to_string();
            let mut command = self.llmrt.command();
            command.args(["run", "--raw", "--temp", "1", "-n", "240", "-p", begin, "--seed", &seed]);
            let out = watched(&mut command)?;
            text += &format!("{begin}{}\n\n", String::from_utf8_lossy(&out.stdout).trim_end());
        }
        let path = self.text(part);
        std::fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))
    }

    fn quantise(&self, from: &Path, to: &Path, name: &str) -> Result<(), String> {
        let mut command = self.llmrt.command();
        watched(command.arg("quantize").arg(from).arg(to).args([name, "--pure", "--force"])).map(drop)
    }

    /// Both programs on the model in a type.
    pub fn row(&self, name: &str) -> Result<Row, String> {
        let is_long = has_long_blocks(name);
        let base = self.base(is_long);
        let model = match name {
            "f32" => base.clone(),
            _ => self.dir.join(format!("{name}.gguf")),
        };
        if model != base {
            self.quantise(&base, &model, name)?;
        }
        let mut row = Row::default();
        for part in 0..self.n_parts {
            row.ours.push(self.run_llmrt(&model, part, &base)?);
            row.theirs.push(self.compare_in_peer(&model, part, is_long)?);
        }
        Ok(row)
    }

    fn run_llmrt(&self, model: &Path, part: usize, base: &Path) -> Result<Found, String> {
        let mut command = self.llmrt.command();
        command.args(["perplexity", "--json", "-c", WINDOW, "--chunks", WINDOWS, "-f"]).arg(self.text(part));
        let found = parsed(&watched(command.arg("--kl").arg(base).arg(model))?.stdout)?;
        Ok(Found { loss: number(&found, "perplexity")?.ln(), kld: number(&found, "mean_kld")? })
    }

    /// The peer's thread that prints may lose its last lines on a busy machine: then it runs again.
    fn compare_in_peer(&self, model: &Path, part: usize, is_long: bool) -> Result<Found, String> {
        let run = || {
            let out = self.run_peer(model, part, is_long, &["--kl-divergence"])?;
            let loss = peers_number(&out, "Mean PPL(Q)")?.ln();
            Ok(Found { loss, kld: peers_number(&out, "Mean    KLD")? })
        };
        (0..20).fold(run(), |found, _| found.or_else(|_: String| run()))
    }

    /// Without flags the peer writes the base of a part. Its threads wait for each other by spinning, and there is one.
    fn run_peer(&self, model: &Path, part: usize, is_long: bool, flags: &[&str]) -> Result<String, String> {
        let base = self.dir.join(format!("{}{part}.kld", if is_long { "long-" } else { "" }));
        let mut command = Command::new(self.peer);
        command.args(["-c", WINDOW, "--chunks", WINDOWS, "-t", "1", "-f"]).arg(self.text(part)).arg("-m");
        command.arg(model).arg("--kl-divergence-base").arg(base).args(flags);
        Ok(String::from_utf8_lossy(&watched(&mut command)?.stdout).into_owned())
    }
}

/// `NAME : VALUE ± ERROR` in what the peer prints.
fn peers_number(text: &str, name: &str) -> Result<f64, String> {
    let line = text.lines().find_map(|line| line.trim().strip_prefix(name)?.trim_start().strip_prefix(':'));
    let value = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    value.ok_or_else(|| format!("the peer did not print `{name}`: is it llama-perplexity?\n{text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_in_what_the_peer_prints() {
        let text = "x\nMean PPL(Q)                   :   2.312404 ±   0.118777\nMean    KLD:   0.000228 ±   0.000020\n";
        assert_eq!(peers_number(text, "Mean PPL(Q)"), Ok(2.312404));
        assert_eq!(peers_number(text, "Mean    KLD"), Ok(0.000228));
        assert!(peers_number("usage", "Mean    KLD").unwrap_err().contains("llama-perplexity"));
    }
}
