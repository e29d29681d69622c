//! `llmrt pull`: a model from a registry or a hub into the store.

use crate::args::Global;
use crate::cmd::Command;
use crate::error::Result;
use crate::store;
use clap::Args;
use llmrt_store::Source;

/// Get a model from a registry into the store.
///
/// A name is [HOST/][NAMESPACE/]NAME[:TAG], as Ollama has them; hf.co/USER/REPO[:QUANT] is a GGUF file of the hub, by its
/// quantisation [default: Q4_K_M, else the first]. What a broken or interrupted download has received is continued by the
/// next one. Files are verified by their SHA-256 before they have their names.
#[derive(Args, Debug)]
pub struct Pull {
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

impl Command for Pull {
    const NAME: &'static str = "pull";
    const ENDS_AT_ONCE: bool = true;

    fn run(&self, _: &Global) -> Result<()> {
        store::pull(&self.name.parse::<Source>()?, self.insecure, self.quiet)
    }
}
