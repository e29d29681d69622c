//! `llmrt cp`: a second name for a model of the store.

use crate::args::Global;
use crate::cmd::Command;
use crate::error::Result;
use crate::output::note;
use crate::store;
use clap::Args;
use llmrt_store::Name;

/// Give a model of the store a second name; both share its files.
#[derive(Args, Debug)]
pub struct Cp {
    /// Model.
    #[arg(value_name = "FROM")]
    pub from: String,
    /// Its second name; a model that has it is replaced.
    #[arg(value_name = "TO")]
    pub to: String,
    /// No line at the end.
    #[arg(short, long)]
    pub quiet: bool,
}

impl Command for Cp {
    const NAME: &'static str = "cp";

    fn run(&self, _: &Global) -> Result<()> {
        let (from, to): (Name, Name) = (self.from.parse()?, self.to.parse()?);
        store::open()?.copy(&from, &to)?;
        if !self.quiet {
            note(format_args!("{to}: is {from}"));
        }
        Ok(())
    }
}
