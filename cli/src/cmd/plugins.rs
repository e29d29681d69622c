//! `llmrt plugins`: every plugin file that was found, and why it is in use or not.

use crate::args::Global;
use crate::cmd::Command;
use crate::error::Result;
use crate::output::{self, n_things};
use crate::setup::Plugins;
use clap::Args;
use llmrt_host::{Candidate, Outcome};
use serde_json::{Value, json};

/// List plugin files and why each was accepted or rejected.
#[derive(Args, Debug)]
pub struct Listing {
    /// JSON on stdout.
    #[arg(long)]
    pub json: bool,
}

impl Command for Listing {
    const NAME: &'static str = "plugins";

    fn run(&self, global: &Global) -> Result<()> {
        plugins(global, self)
    }
}

/// Lists the built-in plugin and all files looked at. A file of `--plugin` that was rejected is an error after the list.
fn plugins(global: &Global, args: &Listing) -> Result<()> {
    let loaded = Plugins::look(global)?;
    list(args, &loaded)?;
    loaded.check_named()
}

fn list(args: &Listing, loaded: &Plugins) -> Result<()> {
    let built_in: Vec<_> = loaded.host.plugins_in_use().into_iter().filter(|p| p.path.is_none()).collect();
    if args.json {
        let linked = built_in.iter().map(|p| {
            json!({ "file": null, "state": "loaded", "name": p.name, "version": p.version, "vendor": p.vendor })
        });
        return Ok(output::json(&linked.chain(loaded.candidates.iter().map(as_json)).collect())?);
    }
    let mut rows: Vec<Vec<String>> = built_in
        .iter()
        .map(|p| ["(built in)", "loaded", &format!("{} {}", p.name, p.version)].map(String::from).to_vec())
        .collect();
    rows.extend(loaded.candidates.iter().map(|c| {
        let (state, why) = match &c.outcome {
            Outcome::Loaded { name, version, n_devices } => {
                ("loaded", format!("{name} {version}, {}", n_things(*n_devices, "device")))
            }
            Outcome::Rejected(why) => ("rejected", why.clone()),
            Outcome::Skipped(why) => ("skipped", why.clone()),
        };
        vec![c.path.display().to_string(), state.into(), why]
    }));
    Ok(output::table(&["file", "state", "name or reason"], &rows)?)
}

fn as_json(c: &Candidate) -> Value {
    let file = c.path.display().to_string();
    match &c.outcome {
        Outcome::Loaded { name, version, n_devices } => {
            json!({ "file": file, "state": "loaded", "name": name, "version": version, "n_devices": n_devices })
        }
        Outcome::Rejected(why) => json!({ "file": file, "state": "rejected", "reason": why }),
        Outcome::Skipped(why) => json!({ "file": file, "state": "skipped", "reason": why }),
    }
}
