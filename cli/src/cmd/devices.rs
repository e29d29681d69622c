//! `llmrt devices`: devices, their memory and kind, and why any is not used; with `--knobs` the environment variables.

use crate::args::Global;
use crate::backend::Offered;
use crate::cmd::Command;
use crate::output::{self, bytes, note};
use crate::setup::{Plugins, idle_because};
use clap::Args;
use llmrt_gguf::printable_path;
use llmrt_host::{Candidate, Device, Outcome, PoolStats, knobs};
use serde_json::{Value, json};
use std::sync::Arc;

/// List devices, their memory and kind, and why any is unused.
#[derive(Args, Debug)]
pub struct Devices {
    /// JSON on stdout.
    #[arg(long)]
    pub json: bool,
    /// Show every environment variable that is read, and its value.
    #[arg(long)]
    pub knobs: bool,
}

impl Command for Devices {
    const NAME: &'static str = "devices";

    fn run(&self, global: &Global) -> crate::error::Result<()> {
        devices(global, self)
    }
}

/// Lists devices, or the knobs table.
fn devices(global: &Global, args: &Devices) -> crate::error::Result<()> {
    if args.knobs {
        return print_knobs(args.json);
    }
    let plugins = Plugins::load(global)?;
    // With -v the log has these lines already.
    for Candidate { path, outcome } in plugins.host.quietly_refused().iter().filter(|_| global.verbose == 0) {
        if let Outcome::Rejected(why) = outcome {
            note(format_args!("{}: not loaded: {why}", printable_path(path)));
        }
    }
    let chosen = plugins.choose(global)?;
    let rows: Vec<Row> = plugins
        .offered()
        .into_iter()
        .map(|(device, offered)| {
            let place = chosen.iter().position(|d| d.name() == device.name()).map(|i| i + 1);
            Row::new(&device, offered, place, !global.backend.is_empty())
        })
        .collect();
    if args.json {
        return Ok(output::json(&rows.iter().map(Row::json).collect())?);
    }
    let cells = |row: &Row| {
        let mut cells = row.cells();
        cells.truncate(if global.verbose == 0 { 7 } else { 8 });
        cells
    };
    let rows: Vec<_> = rows.iter().map(cells).collect();
    let titles: &[&str] = &["device", "kind", ">memory", ">free", "plugin", "description", "use", "pool"];
    // The pool is for those who look closer.
    let n_columns = titles.len() - usize::from(global.verbose == 0);
    Ok(output::table(&titles[..n_columns], &rows)?)
}

/// A row of the table: a device.
struct Row {
    id: String,
    kind: &'static str,
    description: String,
    arch: String,
    /// Total and free bytes.
    memory: (u64, Option<u64>),
    /// How the host manages scratch memory of its streams, where it does, or why it could not.
    pool: Option<Result<PoolStats, String>>,
    offered: Offered,
    /// Place in the order of choice, from 1.
    place: Option<usize>,
    unused: Option<String>,
}

impl Row {
    fn new(device: &Arc<Device>, offered: Offered, place: Option<usize>, is_by_flag: bool) -> Row {
        let info = device.info();
        let why = || idle_because(device).or(is_by_flag.then(|| "--backend does not name it".into()));
        // Last: only a device that works returns its free memory.
        let unused = if place.is_some() { None } else { why().or(Some("the CPU comes before it".into())) };
        let free = if offered.unusable.is_none() { device.memory().ok() } else { None };
        Row {
            id: device.name().into(),
            kind: info.kind_name(),
            description: info.description.clone(),
            arch: info.arch.clone(),
            memory: (free.map_or(info.memory_total, |(_, total)| total), free.map(|(free, _)| free)),
            pool: if offered.unusable.is_none() {
                device.pool().map_err(|e| e.to_string()).transpose()
            } else {
                None
            },
            offered,
            place,
            unused,
        }
    }

    fn cells(&self) -> Vec<String> {
        let plugin = self.offered.file_name().unwrap_or_else(|| "(built in)".into());
        let place = match (self.place, &self.unused) {
            (Some(place), _) => format!("choice {place}"),
            (None, Some(why)) => format!("not used: {why}"),
            (None, None) => String::new(),
        };
        let free = self.memory.1.map_or("?".into(), bytes);
        let description = match self.arch.as_str() {
            "" => self.description.clone(),
            arch => format!("{} ({arch})", self.description),
        };
        let pool = self.pool.as_ref().map_or("its own".into(), pool_cell);
        let (id, kind, total) = (self.id.clone(), self.kind.into(), bytes(self.memory.0));
        vec![id, kind, total, free, plugin, description, place, pool]
    }

    fn pool_stats(&self) -> Option<&PoolStats> {
        self.pool.as_ref()?.as_ref().ok()
    }

    fn json(&self) -> Value {
        json!({
            "id": self.id, "kind": self.kind, "description": self.description, "arch": self.arch,
            "memory_total": self.memory.0, "memory_free": self.memory.1,
            "pool": self.pool_stats().map(|stats| stats.kind.to_string()),
            "pool_reserved": self.pool_stats().map(|stats| stats.reserved),
            "pool_mapped": self.pool_stats().map(|stats| stats.mapped),
            "plugin": self.offered.plugin, "file": self.offered.file_name(),
            "choice": self.place, "unused_because": self.unused,
        })
    }
}

/// What a new stream's pool holds.
fn pool_cell(pool: &Result<PoolStats, String>) -> String {
    match pool {
        Ok(PoolStats { kind, reserved: 0, mapped, .. }) => format!("{kind}, {} mapped", bytes(*mapped)),
        Ok(s) => format!("{}, {} mapped of {} reserved", s.kind, bytes(s.mapped), bytes(s.reserved)),
        Err(why) => format!("none: {why}"),
    }
}

fn print_knobs(as_json: bool) -> crate::error::Result<()> {
    if as_json {
        let rows = knobs::TABLE.iter().map(|knob| {
            json!({
                "name": knob.name, "value": knob.shown(), "default": knob.default,
                "meaning": knob.meaning, "used_in": knob.used_in,
            })
        });
        return Ok(output::json(&rows.collect())?);
    }
    let row = |knob: &knobs::Knob| {
        let value = knob.shown().unwrap_or_else(|| "(not set)".into());
        vec![knob.name.to_string(), value, knob.default.to_string(), knob.meaning.to_string()]
    };
    Ok(output::table(
        &["variable", "value", "default", "meaning"],
        &knobs::TABLE.iter().map(row).collect::<Vec<_>>(),
    )?)
}
