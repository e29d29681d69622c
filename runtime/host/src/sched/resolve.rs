//! From a graph to devices and splits: asks for verdicts, takes apart, places, cuts. Allocates no device memory.

use super::place::{DeviceIdx, Facts, Placement, place};
use super::report::Report;
use super::split::{Split, split};
use super::{bind, legalise};
use crate::device::Device;
use crate::error::Result;
use llmrt_abi::{Reason, types::Verdict};
use llmrt_graph::Graph;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// A graph with devices, ready to get memory.
pub struct Resolved {
    /// With composite nodes taken apart where that was needed.
    pub graph: Graph,
    /// One device per node.
    pub placement: Placement,
    /// In execution order.
    pub splits: Vec<Split>,
    /// The same in words.
    pub report: Report,
}

/// What is known before a graph is placed.
#[derive(Clone, Default)]
pub struct Known {
    /// Weights and states that have memory: name to devices.
    pub homes: HashMap<String, Vec<DeviceIdx>>,
    /// Per device, bytes free for new weights and states; `None`: no limit.
    pub budget: Vec<Option<u64>>,
    /// Nodes a device said yes to and then refused.
    pub refused: HashSet<(DeviceIdx, Signature)>,
}

/// What a node looks like: op, params, dtypes and dims of sources and result.
pub type Signature = (u32, Vec<u8>, Vec<(u32, [u64; 4])>);

/// The signature of a node.
pub fn signature(g: &Graph, node: usize) -> Signature {
    let n = &g.nodes[node];
    let shapes = n.src.iter().flatten().chain([&n.dst]).map(|&t| (g.def(t).dtype.id(), g.ne(t))).collect();
    (n.op.id(), n.params.clone(), shapes)
}

/// Places a graph on `devices`, first choice first, the CPU baseline last.
pub fn resolve(g: &Graph, devices: &[Arc<Device>], known: &Known) -> Result<Resolved> {
    let mut verdicts = all_verdicts(g, devices, known)?;
    let refused =
        g.nodes.iter().zip(&verdicts[0]).filter(|(_, v)| v.support == 0).map(|(n, _)| n.dst).collect();
    let mut failure = None;
    let legal = legalise::legalise(g, &refused, |parts, n| {
        let tail = parts.nodes.len() - n;
        match verdicts_of(parts, &devices[0], 0, known) {
            Ok(v) => v[tail..].iter().all(|v| v.support == 1 || v.support == 3),
            Err(e) => {
                failure = Some(e);
                false
            }
        }
    });
    if let Some(e) = failure {
        return Err(e);
    }
    let (graph, n_legalised) = legal.unwrap_or_else(|| (g.clone(), 0));
    if n_legalised > 0 {
        verdicts = all_verdicts(&graph, devices, known)?;
    }
    let facts = Facts { verdicts: &verdicts, homes: &known.homes, budget: &known.budget };
    let placement = place(&graph, &facts);
    let splits = split(&graph, &placement);
    let names = devices.iter().map(|d| d.name().to_string()).collect();
    let mut report = Report::new(&graph, names, &splits, &placement.fallbacks);
    report.n_legalised = n_legalised;
    Ok(Resolved { graph, placement, splits, report })
}

fn all_verdicts(g: &Graph, devices: &[Arc<Device>], known: &Known) -> Result<Vec<Vec<Verdict>>> {
    devices.iter().enumerate().map(|(d, device)| verdicts_of(g, device, d, known)).collect()
}

/// What one device says, with what it broke its word on taken as a no.
fn verdicts_of(g: &Graph, device: &Arc<Device>, d: DeviceIdx, known: &Known) -> Result<Vec<Verdict>> {
    let raw = bind::unbound(g)?;
    let mut verdicts = device.supports(&raw, 0..g.nodes.len())?;
    if !known.refused.is_empty() {
        for (i, verdict) in verdicts.iter_mut().enumerate() {
            if known.refused.contains(&(d, signature(g, i))) {
                *verdict = Verdict { support: 0, reason: Reason::Op.code(), ..Verdict::default() };
            }
        }
    }
    Ok(verdicts)
}
