//! `llmrt cache`: files of sealed weights, listed and removed.

use crate::args::Global;
use crate::cmd::Command;
use crate::error::{Error, Exit, Result};
use crate::output::{self, bytes, note};
use crate::{clock, model};
use clap::{Args, ValueEnum};
use llmrt_host::load::seal_cache::{Entry, SealCache};
use serde_json::json;
use std::path::PathBuf;

/// List or remove the files that --seal-cache keeps: weights in the layouts that devices make of them.
#[derive(Args, Debug)]
pub struct Cache {
    /// List the files, the least recently used first, or remove some.
    #[arg(value_enum, value_name = "ACTION")]
    pub action: Action,
    /// Files, by their names in the folder.
    #[arg(value_name = "FILE")]
    pub names: Vec<String>,
    /// Remove all files.
    #[arg(long, conflicts_with = "names")]
    pub all: bool,
    /// The folder [default: that of LLMRT_SEAL_CACHE].
    #[arg(long, value_name = "DIR")]
    pub seal_cache: Option<PathBuf>,
    /// JSON instead of a table: file, size in bytes, used (UTC).
    #[arg(long)]
    pub json: bool,
}

/// What to do.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// List them.
    Ls,
    /// Remove those that are named, or with --all each.
    Rm,
}

impl Command for Cache {
    const NAME: &'static str = "cache";

    fn run(&self, _: &Global) -> Result<()> {
        let folder = model::seal_cache_folder(self.seal_cache.as_deref())
            .ok_or_else(|| Error::usage("no folder: give --seal-cache DIR, or set LLMRT_SEAL_CACHE"))?;
        let failed = |e: std::io::Error| Error::new(Exit::Usage, format!("{}: {e}", folder.display()));
        let entries = SealCache::new(&folder, SealCache::LIMIT).entries().map_err(failed)?;
        match self.action {
            Action::Ls => self.list(&entries),
            Action::Rm => self.remove(&entries),
        }
    }
}

impl Cache {
    fn list(&self, entries: &[Entry]) -> Result<()> {
        if self.all || !self.names.is_empty() {
            return Err(Error::usage("cache ls lists all files: it takes no FILE and no --all"));
        }
        if self.json {
            return Ok(output::json(&entries.iter().map(as_json).collect())?);
        }
        let row =
            |entry: &Entry| vec![name(entry), bytes(entry.size), clock::date(entry.used).replace('T', " ")];
        Ok(output::table(&["FILE", ">SIZE", "USED"], &entries.iter().map(row).collect::<Vec<_>>())?)
    }

    fn remove(&self, entries: &[Entry]) -> Result<()> {
        if self.names.is_empty() && !self.all {
            return Err(Error::usage("cache rm: name the files to remove (`llmrt cache ls`), or give --all"));
        }
        let is_named = |entry: &&Entry| self.all || self.names.contains(&name(entry));
        if let Some(missing) = self.names.iter().find(|n| !entries.iter().any(|entry| name(entry) == **n)) {
            return Err(Error::usage(format!("no file {missing} in the cache: see `llmrt cache ls`")));
        }
        for entry in entries.iter().filter(is_named) {
            let removed = std::fs::remove_file(&entry.path);
            removed.map_err(|e| Error::new(Exit::Usage, format!("{}: {e}", entry.path.display())))?;
            note(format_args!("{}: removed, {} freed", name(entry), bytes(entry.size)));
        }
        Ok(())
    }
}

fn name(entry: &Entry) -> String {
    entry.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn as_json(entry: &Entry) -> serde_json::Value {
    json!({ "file": name(entry), "size": entry.size, "used": format!("{}Z", clock::date(entry.used)) })
}
