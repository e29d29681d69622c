//! `llmrt push`: a model of the store to a registry.

use crate::args::Global;
use crate::cmd::Command;
use crate::error::Result;
use crate::output::note;
use crate::store;
use clap::Args;
use llmrt_store::Source;

/// Send a model of the store to a registry.
///
/// The registry is the host of the name: `llmrt cp` gives a model another name first. Parts that the registry has are not
/// sent again. Registries that require an account are not supported yet.
#[derive(Args, Debug)]
pub struct Push {
    /// Model; http:// before it is plain HTTP and needs --insecure.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Permit plain HTTP.
    #[arg(long)]
    pub insecure: bool,
    /// No progress and no line at the end.
    #[arg(short, long)]
    pub quiet: bool,
}

impl Command for Push {
    const NAME: &'static str = "push";
    const ENDS_AT_ONCE: bool = true;

    fn run(&self, _: &Global) -> Result<()> {
        let source: Source = self.name.parse()?;
        let (store, client) = (store::open()?, store::client(self.insecure));
        store::with_progress(self.quiet, |watch| client.push(&store, &source, watch))?;
        if !self.quiet {
            note(format_args!("{}: pushed", source.name));
        }
        Ok(())
    }
}
