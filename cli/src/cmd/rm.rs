//! `llmrt rm`: removes models from the store.

use crate::args::Global;
use crate::cmd::Command;
use crate::error::Result;
use crate::output::{bytes, note};
use crate::store;
use clap::Args;
use llmrt_store::{Name, Removed};

/// Remove models from the store, and the files that no other model uses.
#[derive(Args, Debug)]
pub struct Rm {
    /// Models.
    #[arg(value_name = "NAME", required = true)]
    pub names: Vec<String>,
    /// No line at the end.
    #[arg(short, long)]
    pub quiet: bool,
}

impl Command for Rm {
    const NAME: &'static str = "rm";

    fn run(&self, _: &Global) -> Result<()> {
        let store = store::open()?;
        let names = self.names.iter().map(|name| Ok(name.parse::<Name>()?)).collect::<Result<Vec<_>>>()?;
        for name in names {
            let removed = store.remove(&name)?;
            if !self.quiet {
                note(format_args!("{name}: removed, {}", freed(removed)));
            }
        }
        Ok(())
    }
}

fn freed(removed: Removed) -> String {
    match (removed.is_deferred, removed.n_blobs) {
        (true, _) => "its files go with the next removal, since another process adds a model now".into(),
        (false, 0) => "its files stay, since another model has them".into(),
        (false, _) => format!("{} freed", bytes(removed.bytes)),
    }
}
