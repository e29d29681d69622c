//! `llmrt doctor`: looks at everything that llmrt relies on, and reports what is wrong with what to do about it.

mod devices;
mod model;
mod report;
mod server;
mod store;
mod system;

use crate::args::{ContextArgs, Global, OpenArgs, ServerArgs};
use crate::cmd::Command;
use crate::error::Result;
use clap::Args;
use report::Report;
use std::path::PathBuf;

/// Check this machine, its devices, plugins, the store and the server's port, and report what to do.
///
/// Each line is ok, a warning (llmrt works, but not as it could) or a problem. With --backend the devices and plugins are those
/// that it names, and each of these plugins tries what it assumes of its devices, if it can (option NAME.probe); such a line is
/// on stderr as soon as it is known. Nothing is changed, but after --plugin-option cann.probe=all, which tries copies between
/// cards, a card may be of no use until it is reset.
#[derive(Args, Debug)]
#[command(after_help = EXIT_CODES)]
pub struct Doctor {
    /// Model, as a file or a name of the store: can it be read, and does it fit in memory?
    #[arg(short = 'm', long, value_name = "FILE")]
    pub model: Option<PathBuf>,
    /// JSON on stdout: n_problems, n_warnings, and lines with part, level (ok, warning, problem) and text.
    #[arg(long)]
    pub json: bool,
    /// Write the same JSON to this file, too, for a bug report: at each line, so that a crash leaves what was found.
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    #[command(flatten)]
    pub server: ServerArgs,
    #[command(flatten)]
    pub context: ContextArgs,
    #[command(flatten)]
    pub open: OpenArgs,
}

const EXIT_CODES: &str = "\
Exit codes:
  0    no problem; there may be warnings
  1    a problem";

impl Command for Doctor {
    const NAME: &'static str = "doctor";
    const ENDS_AT_ONCE: bool = true;

    fn run(&self, global: &Global) -> Result<()> {
        let report = Report::to_file(self.report.as_deref())?;
        system::versions(&report);
        system::variables(&report);
        let plugins = devices::check(&report, global);
        system::processor(&report, global);
        system::memory(&report, plugins.as_ref());
        store::check(&report);
        server::check(&report, &self.server);
        if let Some(path) = &self.model {
            model::check(&report, global, plugins, path, self);
        }
        report.write()?;
        report.print(self.json)
    }
}
