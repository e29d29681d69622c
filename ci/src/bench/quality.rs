//! `cargo ci bench quality`: what types of weights cost, in llmrt and in a peer on the same files: perplexity, and the
//! divergence from F32. Fails where llmrt loses more than the peer.

use super::options::has_long_blocks;
use super::padded;
use super::program::{Llmrt, number, parsed, watched};
use super::table::machine;
use crate::root;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Types whose blocks suit the rows of the embedded model, then those that need longer rows.
const TYPES: &str = "f32,f16,bf16,q4_0,q4_1,q5_0,q5_1,q8_0,iq4_nl,mxfp4,q2_k,q3_k,q4_k,q5_k,q6_k,iq4_xs";

/// Parts of the text, of which each is measured alone: how they differ says how far the ratios can be trusted.
const PARTS: usize = 8;
/// Stories in a part, windows that are read of it, tokens of a window.
const STORIES: usize = 14;
const WINDOWS: &str = "20";
const WINDOW: &str = "128";

/// How much worse than the peer's a number may be.
const BOUND: f64 = 0.01;
/// Divergences below are not told apart: the peer keeps its base as numbers of 16 bits and prints six digits.
const RESOLUTION: f64 = 2e-6;

/// Measures and prints a Markdown table.
pub fn quality(words: &[&str]) -> Result<(), String> {
    let (mut peer, mut llmrt, mut types) = (None, None, TYPES);
    let mut rest = words.iter();
    while let Some(&flag) = rest.next() {
        let value = *rest.next().ok_or_else(|| format!("{flag}: expected a value behind it"))?;
        match flag {
            "--peer" => peer = Some(Path::new(value)),
            "--llmrt" => llmrt = Some(Path::new(value)),
            "--types" => types = value,
            _ => return Err(format!("bench quality {flag}: expected --peer, --llmrt or --types")),
        }
    }
    let peer = peer.ok_or("bench quality: expected --peer and the path of a llama-perplexity")?;
    let lab = Lab::new(Llmrt::new(llmrt, None)?, peer)?;
    println!("`cargo ci bench quality {}` on {}.\n", words.join(" "), machine());
    println!("{TITLES}");
    let mut wrong = Vec::new();
    for name in types.split(',') {
        let row = lab.row(name)?;
        println!("{}", row.text(name));
        wrong.extend((!row.is_good()).then_some(name));
    }
    match wrong.as_slice() {
        [] => Ok(()),
        names => Err(format!("worse than the peer by more than {} %: {}", 100.0 * BOUND, names.join(", "))),
    }
}

const TITLES: &str = "\
A ratio is llmrt's value over the peer's, below 1 in favour of llmrt, ± its standard error.

| type | perplexity: llmrt | peer | ratio | divergence: llmrt | peer | ratio |
|---|--:|--:|--:|--:|--:|--:|";

/// The programs, the text, and the models in F32.
struct Lab<'p> {
    llmrt: Llmrt,
    peer: &'p Path,
    dir: PathBuf,
}

/// What one program found in one part: the logarithm of the perplexity, and the mean divergence.
#[derive(Clone, Copy, Debug)]
struct Found {
    loss: f64,
    kld: f64,
}

impl Lab<'_> {
    fn new(llmrt: Llmrt, peer: &Path) -> Result<Lab<'_>, String> {
        let dir = root().join("target/bench/quality");
        std::fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        let lab = Lab { llmrt, peer, dir };
        lab.quantise(&root().join("cli/assets/stories.gguf"), &lab.base(false), "f32")?;
        padded::write(&lab.base(false), &lab.base(true))?;
        for part in 0..PARTS {
            lab.write_text(part)?;
            for is_long in [false, true] {
                lab.ask_peer(&lab.base(is_long), part, is_long, &[])?;
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

    fn row(&self, name: &str) -> Result<Row, String> {
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
        for part in 0..PARTS {
            row.ours.push(self.ask_llmrt(&model, part, &base)?);
            row.theirs.push(self.compare_in_peer(&model, part, is_long)?);
        }
        Ok(row)
    }

    fn ask_llmrt(&self, model: &Path, part: usize, base: &Path) -> Result<Found, String> {
        let mut command = self.llmrt.command();
        command.args(["perplexity", "--json", "-c", WINDOW, "--chunks", WINDOWS, "-f"]).arg(self.text(part));
        let found = parsed(&watched(command.arg("--kl").arg(base).arg(model))?.stdout)?;
        Ok(Found { loss: number(&found, "perplexity")?.ln(), kld: number(&found, "mean_kld")? })
    }

    /// The peer's thread that prints may lose its last lines on a busy machine: then it is asked again.
    fn compare_in_peer(&self, model: &Path, part: usize, is_long: bool) -> Result<Found, String> {
        let ask = || {
            let out = self.ask_peer(model, part, is_long, &["--kl-divergence"])?;
            let loss = peers_number(&out, "Mean PPL(Q)")?.ln();
            Ok(Found { loss, kld: peers_number(&out, "Mean    KLD")? })
        };
        (0..20).fold(ask(), |found, _| found.or_else(|_: String| ask()))
    }

    /// Without flags the peer writes the base of a part. Its threads wait for each other by spinning, and there is one.
    fn ask_peer(&self, model: &Path, part: usize, is_long: bool, flags: &[&str]) -> Result<String, String> {
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

/// What both found in each part.
#[derive(Default)]
struct Row {
    ours: Vec<Found>,
    theirs: Vec<Found>,
}

impl Row {
    fn text(&self, name: &str) -> String {
        let (ppl, kld) = (self.perplexity(), self.divergence());
        let ratio = match kld.theirs < RESOLUTION {
            true => "–".into(),
            false => format!("{:.3} ± {:.3}", kld.ratio, kld.error),
        };
        format!(
            "| {} | {:.4} | {:.4} | {:.4} ± {:.4} | {:.6} | {:.6} | {ratio} |",
            name.to_uppercase(),
            ppl.ours,
            ppl.theirs,
            ppl.ratio,
            ppl.error,
            kld.ours,
            kld.theirs
        )
    }

    /// Whether both numbers are within the bound, as far as the parts can tell.
    fn is_good(&self) -> bool {
        let (ppl, kld) = (self.perplexity(), self.divergence());
        let is_near = (ppl.ratio - 1.0).abs() <= BOUND + 2.0 * ppl.error;
        let allowed = match kld.theirs < RESOLUTION {
            true => 0.0,
            false => kld.theirs * (1.0 + BOUND + 2.0 * kld.error),
        };
        is_near && kld.ours <= allowed + RESOLUTION
    }

    fn perplexity(&self) -> Compared {
        Compared::new(self, |found| found.loss, |mean| mean.exp())
    }

    fn divergence(&self) -> Compared {
        Compared::new(self, |found| found.kld, |mean| mean)
    }
}

/// A number of each program over all parts, and their ratio.
struct Compared {
    ours: f64,
    theirs: f64,
    ratio: f64,
    /// Standard error of the ratio: of what it is without each of the parts (the jackknife).
    error: f64,
}

impl Compared {
    fn new(row: &Row, of: impl Fn(&Found) -> f64, value: impl Fn(f64) -> f64) -> Compared {
        let without = |founds: &[Found], left_out: Option<usize>| {
            let kept = founds.iter().enumerate().filter(|(i, _)| Some(*i) != left_out);
            let n = founds.len() - usize::from(left_out.is_some());
            value(kept.map(|(_, found)| of(found)).sum::<f64>() / n.max(1) as f64)
        };
        let ratio = |left_out| without(&row.ours, left_out) / without(&row.theirs, left_out);
        let n = row.ours.len();
        let ratios: Vec<f64> = (0..n).map(|i| ratio(Some(i))).collect();
        let mean = ratios.iter().sum::<f64>() / n as f64;
        let spread = ratios.iter().map(|r| (r - mean).powi(2)).sum::<f64>();
        let error = (spread * (n as f64 - 1.0) / n as f64).sqrt();
        Compared {
            ours: without(&row.ours, None),
            theirs: without(&row.theirs, None),
            ratio: ratio(None),
            error,
        }
    }
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

    /// Divergences of each part, and whether they are good enough.
    fn check(ours: &[f64], theirs: &[f64], is_good: bool) {
        let founds = |klds: &[f64]| klds.iter().map(|&kld| Found { loss: 1.0, kld }).collect();
        let row = Row { ours: founds(ours), theirs: founds(theirs) };
        assert_eq!(row.is_good(), is_good, "{ours:?} {theirs:?}: {}", row.text("q"));
    }

    #[test]
    fn a_loss_counts_where_all_parts_show_it() {
        check(&[0.0102, 0.0204], &[0.01, 0.02], false);
        check(&[0.0100, 0.0204], &[0.01, 0.02], true);
        check(&[0.0050, 0.0100], &[0.01, 0.02], true);
        check(&[0.0130, 0.0200], &[0.01, 0.02], true);
        check(&[1e-6, 1e-6], &[0.0, 0.0], true);
    }
}
