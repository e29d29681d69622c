//! `llmrt list`: the models of the store.

use crate::args::Global;
use crate::cmd::Command;
use crate::error::{Error, Result};
use crate::output::{self, bytes, note};
use crate::{clock, store};
use clap::Args;
use llmrt_store::Entry;
use serde_json::json;

/// List the models of the store.
#[derive(Args, Debug)]
#[command(visible_alias = "ls")]
pub struct List {
    /// Only names that begin with this.
    #[arg(value_name = "PREFIX")]
    pub prefix: Option<String>,
    /// JSON instead of a table: name, id (digest of the manifest), size in bytes, modified (UTC).
    #[arg(long)]
    pub json: bool,
}

impl Command for List {
    const NAME: &'static str = "list";

    fn run(&self, _: &Global) -> Result<()> {
        let (mut entries, errors) = store::open()?.list()?;
        let prefix = self.prefix.as_deref().unwrap_or_default();
        entries.retain(|entry| entry.name.to_string().starts_with(prefix));
        errors.into_iter().for_each(|e| note(format_args!("warning: {}", Error::from(e).message)));
        if self.json {
            return Ok(output::json(&entries.iter().map(as_json).collect())?);
        }
        let rows: Vec<_> = entries.iter().map(row).collect();
        Ok(output::table(&["NAME", "ID", ">SIZE", "MODIFIED"], &rows)?)
    }
}

fn row(entry: &Entry) -> Vec<String> {
    let modified = clock::date(entry.modified).replace('T', " ");
    vec![entry.name.to_string(), entry.id.short(), bytes(entry.size), modified]
}

fn as_json(entry: &Entry) -> serde_json::Value {
    json!({
        "name": entry.name.to_string(), "id": entry.id, "size": entry.size,
        "modified": format!("{}Z", clock::date(entry.modified)),
    })
}
