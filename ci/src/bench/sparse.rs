//! `cargo ci bench sparse`: a mode of `--sparse` beside `--sparse off`, of the same program on the same files of random weights, in
//! turn (files with predictors: on the ordinary file of the same shape, too); or beside PowerInfer's own program.

use super::cases::Case;
use super::peer::Peer;
use super::program::Llmrt;
use super::table;
use std::path::{Path, PathBuf};

/// A file, how it is run, and the ratio that is aimed at: to `off`, or to PowerInfer.
struct Trial {
    /// As `llmrt synth --like`, `--type` and `--zeros`.
    like: &'static str,
    mix: &'static str,
    zeros: &'static str,
    /// As `--sparse`, with more flags after it.
    mode: &'static [&'static str],
    case: Case,
    /// What the bytes that are read promise.
    promise: Option<f64>,
    aim: f64,
    /// Whether `off` runs the ordinary file of the same shape and reads all of it. Of PowerInfer's files rows of down are left out
    /// with `off`, too, where the activation is zero.
    is_beside_ordinary: bool,
}

/// Two fifths of the normed inputs of matrices are below this.
const FORTY: &[&str] = &["magnitude", "--sparse-threshold", "0.524"];
/// Half of them are below this.
const HALF: &[&str] = &["magnitude", "--sparse-threshold", "0.674"];

/// A row of the table below.
const fn trial(
    (like, mix, zeros): (&'static str, &'static str, &'static str),
    mode: &'static [&'static str],
    case: Case,
    promise: Option<f64>,
    aim: f64,
) -> Trial {
    Trial { like, mix, zeros, mode, case, promise, aim, is_beside_ordinary: false }
}

/// The same, beside the ordinary file.
const fn beside_ordinary(trial: Trial) -> Trial {
    Trial { is_beside_ordinary: true, ..trial }
}

const SMALL: &str = "relu-llama-3.2-1b";
const EXACT: &[&str] = &["exact"];
/// By the counts that `synth` writes beside a file.
const AUTO: &[&str] = &["auto"];
/// Of files with predictors, which are PowerInfer's.
const PREDICT: &[&str] = &["predict"];

/// THE table. Aims of other types than Q4_0 are seven tenths of the gain that bytes promise. With `off` a file with predictors is read
/// but for rows of down, so less is promised beside it, and the aim is the same share of that gain as beside the ordinary file.
const TRIALS: &[Trial] = &[
    trial((SMALL, "q4_0", "0.9"), EXACT, Case::Decode, Some(1.51), 1.35),
    trial(("relu-llama-2-7b", "q4_0", "0.9"), EXACT, Case::Decode, Some(1.58), 1.4),
    trial(("bamboo-7b", "q4_0", "0.9"), EXACT, Case::Decode, Some(1.81), 1.55),
    trial((SMALL, "q4_0", "0.9"), PREDICT, Case::Decode, Some(1.51), 1.36),
    beside_ordinary(trial((SMALL, "q4_0", "0.9"), PREDICT, Case::Decode, Some(1.83), 1.6)),
    trial(("relu-llama-2-7b", "q4_0", "0.9"), PREDICT, Case::Decode, Some(1.6), 1.42),
    beside_ordinary(trial(("relu-llama-2-7b", "q4_0", "0.9"), PREDICT, Case::Decode, Some(1.99), 1.7)),
    trial(("bamboo-7b", "q4_0", "0.9"), PREDICT, Case::Decode, Some(1.92), 1.61),
    beside_ordinary(trial(("bamboo-7b", "q4_0", "0.9"), PREDICT, Case::Decode, Some(2.51), 2.0)),
    trial((SMALL, "q4_0", "0.67"), EXACT, Case::Decode, Some(1.33), 1.2),
    trial((SMALL, "f16", "0.9"), EXACT, Case::Decode, Some(1.55), 1.39),
    trial((SMALL, "q8_0", "0.9"), EXACT, Case::Decode, Some(1.52), 1.37),
    trial((SMALL, "q4_k_m", "0.9"), EXACT, Case::Decode, Some(1.5), 1.35),
    trial((SMALL, "q4_0", "0.01"), AUTO, Case::Decode, None, 0.97),
    trial((SMALL, "q4_0", "0.3"), AUTO, Case::Decode, None, 0.97),
    trial((SMALL, "q4_0", "0.67"), AUTO, Case::Decode, None, 0.97),
    trial((SMALL, "q4_0", "0.3"), AUTO, Case::Prompt, None, 0.97),
    trial((SMALL, "q4_0", "0.9"), EXACT, Case::together(2), None, 1.0),
    trial((SMALL, "q4_0", "0.9"), EXACT, Case::together(4), None, 1.0),
    trial((SMALL, "q4_0", "0.9"), EXACT, Case::together(8), None, 0.97),
    trial((SMALL, "q4_0", "0.9"), EXACT, Case::together(16), None, 0.97),
    trial((SMALL, "q4_0", "0.9"), EXACT, Case::Prompt, None, 0.97),
    trial(("llama-3.1-8b", "q4_0", "0.9"), FORTY, Case::Decode, Some(1.47), 1.3),
    trial(("llama-3.1-8b", "q4_0", "0.9"), HALF, Case::Decode, Some(1.67), 1.4),
];

/// Beside PowerInfer's llama-bench, on one thread each, since its threads add to the same sums without a lock.
const BESIDE_POWERINFER: &[Trial] = &[
    trial(("relu-llama-2-7b", "q4_0", "0.9"), PREDICT, Case::Decode, None, 1.5),
    trial(("relu-llama-2-7b", "q4_0", "0.9"), PREDICT, Case::Prompt, None, 4.0),
];

/// Measures and prints a Markdown table.
pub fn sparse(words: &[&str]) -> Result<(), String> {
    let (mut llmrt, mut powerinfer, mut pairs, mut dir, mut only) = (None, None, 3, None, "");
    let mut quick = false;
    let mut rest = words.iter();
    while let Some(&flag) = rest.next() {
        if flag == "--quick" {
            quick = true;
            continue;
        }
        let value = *rest.next().ok_or_else(|| format!("{flag}: expected a value after it"))?;
        match flag {
            "--llmrt" => llmrt = Some(Path::new(value)),
            "--powerinfer" => powerinfer = Some(Peer::powerinfer(Path::new(value))),
            "--dir" => dir = Some(PathBuf::from(value)),
            "--only" => only = value,
            "--pairs" => {
                pairs = value.parse().ok().filter(|&n: &usize| n > 0).ok_or("--pairs: expected 1 or more")?
            }
            _ => {
                return Err(format!(
                    "bench sparse {flag}: expected --llmrt, --powerinfer, --dir, --only, --pairs or --quick"
                ));
            }
        }
    }
    let llmrt = Llmrt::new(llmrt, None)?;
    let dir = dir.unwrap_or_else(|| crate::root().join("target/bench"));
    std::fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let (trials, n_threads, base) = match powerinfer {
        Some(_) => (BESIDE_POWERINFER, 1, "PowerInfer"),
        None => (TRIALS, 2, "off"),
    };
    println!("{}", table::head(&[&["sparse"], words].concat(), &[(n_threads, llmrt.ceilings(n_threads)?)]));
    println!(
        "| file | mode | case | {base} | with it | ratio (least to most) | bytes promise | aim | |\n\
         |---|---|---|--:|--:|--:|--:|--:|---|"
    );
    for trial in trials.iter().filter(|trial| trial.name().contains(only)) {
        let (mut off, mut on) = (Vec::new(), Vec::new());
        let [path, base_path] = [trial.has_predictors(), trial.base_has_predictors()]
            .map(|has_predictors| trial.file(has_predictors, &llmrt, &dir));
        let (path, base_path) = (path?, base_path?);
        for pair in 0..=pairs {
            let run = |path: &Path, mode: &[&str]| {
                let flags = [&["--sparse"], mode].concat();
                llmrt.run_with(trial.case, path, n_threads, quick, &flags).map(|measure| measure.value)
            };
            let a = match &powerinfer {
                Some(peer) => peer.run(trial.case, &path, n_threads, quick)?.value,
                None => run(&base_path, &["off"])?,
            };
            let b = run(&path, trial.mode)?;
            if pair > 0 {
                off.push(a);
                on.push(b);
            }
        }
        println!("{}", line(trial, quick, &off, &on));
    }
    Ok(())
}

impl Trial {
    fn name(&self) -> String {
        self.name_of(self.has_predictors())
    }

    /// The name of a file of this shape.
    fn name_of(&self, has_predictors: bool) -> String {
        let end = if has_predictors { ".powerinfer" } else { "" };
        format!("{}-{}-{}{end}", self.like, self.mix, self.zeros)
    }

    fn has_predictors(&self) -> bool {
        self.mode == PREDICT
    }

    /// Whether the file that runs with `off` has them.
    fn base_has_predictors(&self) -> bool {
        self.has_predictors() && !self.is_beside_ordinary
    }

    /// A file of this shape, which is written if it is not there.
    fn file(&self, has_predictors: bool, llmrt: &Llmrt, dir: &Path) -> Result<PathBuf, String> {
        let path = dir.join(format!("{}.gguf", self.name_of(has_predictors)));
        if !path.exists() {
            let pure = if self.mix == "q4_0" { &["--pure"][..] } else { &[] };
            let predictors = if has_predictors { &["--predictors"][..] } else { &[] };
            llmrt.synth(
                self.like,
                self.mix,
                &[&["--zeros", self.zeros], pure, predictors].concat(),
                &path,
            )?;
        }
        Ok(path)
    }
}

fn line(trial: &Trial, quick: bool, off: &[f64], on: &[f64]) -> String {
    let ratios: Vec<f64> = on.iter().zip(off).map(|(on, off)| on / off).collect();
    format!(
        "| {} | {}{} | {} | {:.1} | {:.1} | {} | {} | {:.2}× | {} |",
        trial.name(),
        trial.mode[0],
        if trial.is_beside_ordinary { ", `off` of the ordinary file" } else { "" },
        trial.case.title(quick),
        table::median(off),
        table::median(on),
        table::spread(&ratios),
        trial.promise.map_or("–".into(), |promise| format!("{promise:.2}×")),
        trial.aim,
        table::verdict(&ratios, trial.aim),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_of_runs_in_turn_and_all_must_reach_the_aim() {
        let text = |on: &[f64]| line(&TRIALS[0], false, &[10.0, 20.0, 10.0], on);
        assert!(text(&[14.0, 28.0, 15.0]).contains("| 1.40× (1.40 to 1.50) | 1.51× | 1.35× | reached |"));
        assert!(text(&[14.0, 20.0, 15.0]).ends_with("| undecided |"));
        assert!(text(&[10.0, 20.0, 10.0]).ends_with("| missed |"));
    }
}
