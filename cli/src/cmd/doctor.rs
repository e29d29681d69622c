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
/// that it names, and each of these plugins tries what it assumes of its devices, if it can (option NAME.probe). Nothing is
/// changed.
#[derive(Args, Debug)]
#[command(after_help = EXIT_CODES)]
pub struct Doctor {
    /// Model, as a file or a name of the store: can it be read, and does it fit in memory?
    #[arg(short = 'm', long, value_name = "FILE")]
    pub model: Option<PathBuf>,
    /// JSON on stdout: n_problems, n_warnings, and lines with part, level (ok, warning, problem) and text.
    #[arg(long)]
    pub json: bool,
    /// Write the same JSON to this file, too, for a bug report.
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
        let mut report = Report::default();
        system::versions(&mut report);
        system::variables(&mut report);
        let plugins = devices::check(&mut report, global);
        system::processor(&mut report, global);
        system::memory(&mut report, plugins.as_ref());
        store::check(&mut report);
        server::check(&mut report, &self.server);
        if let Some(path) = &self.model {
            model::check(&mut report, global, plugins, path, self);
        }
        if let Some(file) = &self.report {
            report.write(file)?;
        }
        report.print(self.json)
    }
}
