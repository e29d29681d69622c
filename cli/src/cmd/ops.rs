//! `llmrt ops`: every op, which devices run it, and for which types.

use crate::args::{Global, Listing};
use crate::error::Result;
use crate::output;
use crate::setup::Plugins;
use llmrt_abi::{DType, Op};
use llmrt_graph::ops::rules;
use llmrt_host::Device;
use llmrt_host::sched::bind;
use serde_json::json;
use std::sync::Arc;

/// Asks every device about the cases that plugins are tested with.
pub fn ops(global: &Global, args: &Listing) -> Result<()> {
    let plugins = Plugins::load(global)?;
    let devices: Vec<_> = plugins
        .offered()
        .into_iter()
        .filter(|(_, o)| o.unusable.is_none())
        .map(|(device, _)| device)
        .collect();
    let answers: Vec<(Op, Vec<Answer>)> = Op::ALL
        .iter()
        .map(|&op| Ok((op, devices.iter().map(|d| ask(d, op)).collect::<Result<_>>()?)))
        .collect::<Result<_>>()?;

    if args.json {
        let rows = answers.iter().map(|(op, answers)| {
            let devices: Vec<_> = answers.iter().map(Answer::json).collect();
            json!({
                "op": op.name(), "id": op.id(), "meaning": op.info().doc,
                "composite": rules(*op).is_composite(), "devices": devices,
            })
        });
        return Ok(output::json(&rows.collect())?);
    }
    let rows: Vec<Vec<String>> =
        answers.iter().flat_map(|(op, answers)| answers.iter().map(|a| a.cells(*op))).collect();
    Ok(output::table(&["op", ">id", "device", ">cases", "types of its first operand"], &rows)?)
}

/// What a device says about an op.
struct Answer {
    device: String,
    n_supported: usize,
    n_cases: usize,
    /// Types of the first operand among the supported cases.
    types: Vec<DType>,
}

fn ask(device: &Arc<Device>, op: Op) -> Result<Answer> {
    let cases = rules(op).cases();
    let mut answer =
        Answer { device: device.name().into(), n_supported: 0, n_cases: cases.len(), types: Vec::new() };
    for case in &cases {
        let graph = bind::unbound(&case.graph)?;
        let Some(last) = graph.n_nodes().checked_sub(1) else { continue };
        let verdicts = device.supports(&graph, last..last + 1)?;
        if verdicts.iter().all(|v| v.support == 0) {
            continue;
        }
        answer.n_supported += 1;
        let first = case.graph.nodes[last].src.iter().flatten().next();
        answer.types.extend(first.map(|&t| case.graph.def(t).dtype));
    }
    answer.types.sort_by_key(|t| t.id());
    answer.types.dedup();
    Ok(answer)
}

impl Answer {
    fn cells(&self, op: Op) -> Vec<String> {
        let types: Vec<_> = self.types.iter().map(|t| t.name()).collect();
        let cases = format!("{}/{}", self.n_supported, self.n_cases);
        vec![op.name().into(), op.id().to_string(), self.device.clone(), cases, types.join(" ")]
    }

    fn json(&self) -> serde_json::Value {
        let types: Vec<_> = self.types.iter().map(|t| t.name()).collect();
        json!({ "device": self.device, "supported": self.n_supported, "cases": self.n_cases, "types": types })
    }
}
