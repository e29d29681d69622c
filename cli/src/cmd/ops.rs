//! `llmrt ops`: every op, which devices run it, and for which types.

use crate::args::Global;
use crate::backend;
use crate::cmd::Command;
use crate::error::Result;
use crate::output;
use crate::setup::Plugins;
use clap::Args;
use llmrt_abi::Op;
use llmrt_conform::support::Support;
use llmrt_graph::ops::{case::Case, rules};
use llmrt_host::Device;
use llmrt_host::sched::bind;
use serde_json::json;
use std::sync::Arc;

/// List ops and which devices run them.
#[derive(Args, Debug)]
pub struct Ops {
    /// JSON on stdout.
    #[arg(long)]
    pub json: bool,
    /// A Markdown table per device, op × type of the first operand; --backend takes some devices only.
    #[arg(long, conflicts_with = "json")]
    pub markdown: bool,
}

impl Command for Ops {
    const NAME: &'static str = "ops";

    fn run(&self, global: &Global) -> Result<()> {
        ops(global, self)
    }
}

/// Queries every device for the cases that plugins are tested with.
fn ops(global: &Global, args: &Ops) -> Result<()> {
    let plugins = Plugins::load(global)?;
    let mut devices = plugins.offered();
    if !global.backend.is_empty() && args.markdown {
        let offered: Vec<_> = devices.iter().map(|(_, o)| o.clone()).collect();
        let rows = backend::choose(&global.backend, &offered)?;
        devices = rows.into_iter().map(|row| devices[row].clone()).collect();
    }
    devices.retain(|(_, o)| o.unusable.is_none());
    let mut answers: Vec<(Arc<Device>, Support)> =
        devices.into_iter().map(|(device, _)| (device, Support::default())).collect();
    for &op in Op::ALL {
        for case in rules(op).cases() {
            answers.iter_mut().try_for_each(|(device, support)| query(device, op, &case, support))?;
        }
    }

    if args.markdown {
        for (device, support) in &answers {
            output::print(format_args!("# Ops of {}\n\n{}\n\n", device.name(), support.markdown()))?;
        }
        return Ok(());
    }
    if args.json {
        let rows = Op::ALL.iter().map(|&op| {
            let devices: Vec<_> = answers.iter().map(|(device, s)| as_json(device, s, op)).collect();
            json!({
                "op": op.name(), "id": op.id(), "meaning": op.info().doc,
                "composite": rules(op).is_composite(), "devices": devices,
            })
        });
        return Ok(output::json(&rows.collect())?);
    }
    let rows: Vec<Vec<String>> =
        Op::ALL.iter().flat_map(|&op| answers.iter().map(move |(d, s)| cells(d, s, op))).collect();
    Ok(output::table(&["op", ">id", "device", ">cases", "types of its first operand"], &rows)?)
}

/// Whether a device supports a case.
fn query(device: &Arc<Device>, op: Op, case: &Case, support: &mut Support) -> Result<()> {
    let graph = bind::unbound(&case.graph)?;
    let Some(last) = graph.n_nodes().checked_sub(1) else { return Ok(()) };
    let verdicts = device.supports(&graph, last..last + 1)?;
    let node = &case.graph.nodes[last];
    let first = node.src.iter().flatten().next().unwrap_or(&node.dst);
    support.add(op, case.graph.def(*first).dtype, verdicts.iter().any(|v| v.support != 0), false);
    Ok(())
}

fn types(support: &Support, op: Op) -> Vec<&'static str> {
    support.types(op).iter().map(|t| t.name()).collect()
}

fn cells(device: &Device, support: &Support, op: Op) -> Vec<String> {
    let total = support.total(op);
    let cases = format!("{}/{}", total.n_supported, total.n_cases);
    vec![op.name().into(), op.id().to_string(), device.name().into(), cases, types(support, op).join(" ")]
}

fn as_json(device: &Device, support: &Support, op: Op) -> serde_json::Value {
    let total = support.total(op);
    json!({
        "device": device.name(), "supported": total.n_supported, "cases": total.n_cases,
        "types": types(support, op),
    })
}
