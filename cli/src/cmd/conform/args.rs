//! The flags of `conform`.

use crate::values;
use clap::Args;
use std::path::PathBuf;

/// Test a plugin file: everything a host relies on, every op against its plain reference.
///
/// Each case runs in a worker process with a time limit, so a crash or a hang is one failed case and the run goes on.
/// What a device declares as unsupported is skipped and counted with the reason. Exit code 7: a case failed; 4: the
/// plugin found no device.
#[derive(Args, Debug)]
#[command(after_help = CONFORM_HELP)]
pub struct Conform {
    /// The plugin: libllmrt_NAME.so.
    #[arg(value_name = "FILE.so")]
    pub plugin: PathBuf,
    /// Levels to run, as in L3, L0..L3 or L1,L4 [default: L0..L5].
    #[arg(long, value_name = "LEVELS")]
    pub level: Option<String>,
    /// Only cases of ops whose whole name matches this regular expression.
    #[arg(long, value_name = "RE")]
    pub ops: Option<String>,
    /// Measure throughput too: level L6, or only that with --level L6.
    #[arg(long)]
    pub perf: bool,
    /// Every distinct node of this model's prompt and decode steps becomes a case.
    #[arg(long, value_name = "FILE")]
    pub from_model: Option<PathBuf>,
    /// Run only the case in this file, which `llmrt diff --repro` wrote.
    #[arg(long, value_name = "FILE")]
    pub repro: Option<PathBuf>,
    /// The device to test [default: the plugin's first].
    #[arg(long, value_name = "NAME")]
    pub device: Option<String>,
    /// Part I of N, from 1 on: every Nth case of each op and level.
    #[arg(long, value_name = "I/N")]
    pub part: Option<String>,
    /// Worker processes [default: one per core].
    #[arg(long, value_name = "N", value_parser = values::whole, allow_negative_numbers = true)]
    pub jobs: Option<usize>,
    /// Seconds that a case may take.
    #[arg(long, value_name = "S", default_value_t = 60.0)]
    pub time_limit: f64,
    /// End the run after this many failures; cases not reached count as skipped.
    #[arg(long, value_name = "N", value_parser = values::whole, allow_negative_numbers = true)]
    pub max_failures: Option<usize>,
    /// Seed of the random operands.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// List the cases and run none.
    #[arg(long)]
    pub list: bool,
    /// Write the report as JSON to this file; `-`: to stdout.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write the report as Markdown, with the table of ops and types, to this file; `-`: to stdout.
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
}

const CONFORM_HELP: &str = "\
Levels:
  L0  load and static checks       L4  plan replay
  L1  memory                       L5  injected faults
  L2  streams and events           L6  throughput (--perf)
  L3  every op against its reference

The JSON has plugin, device, sha256 (of the file), llmrt (version), cases_run, cases_failed, cases_skipped, failed \
(name, reason), skipped (reason, cases), ops and levels (run, failed, skipped of each), support (op, type: \
supported, cases), perf.

Examples:
  llmrt conform ./libllmrt_mydevice.so --level L0..L2
  llmrt conform ./libllmrt_mydevice.so --ops 'mul_mat.*' --json report.json
  llmrt conform ./libllmrt_mydevice.so --perf --markdown report.md";

impl Conform {
    /// The flags of its workers.
    pub fn worker(&self) -> ConformWorker {
        ConformWorker {
            plugin: self.plugin.clone(),
            device: self.device.clone(),
            seed: self.seed,
            from_model: self.from_model.clone(),
            repro: self.repro.clone(),
        }
    }
}

/// Run cases that are named on stdin: the worker of `conform`.
#[derive(Args, Clone, Debug)]
#[command(hide = true)]
pub struct ConformWorker {
    #[arg(value_name = "FILE.so")]
    pub plugin: PathBuf,
    #[arg(long, value_name = "NAME")]
    pub device: Option<String>,
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    #[arg(long, value_name = "FILE")]
    pub from_model: Option<PathBuf>,
    #[arg(long, value_name = "FILE")]
    pub repro: Option<PathBuf>,
}
