//! From a graph to devices and splits: collects verdicts, legalises, places, splits. Allocates no device memory.

use super::collectives::Collectives;
use super::layers::{self, SplitMode};
use super::place::{DeviceIdx, Facts, Placement, Unplaceable, place};
use super::report::Report;
use super::split::{Split, Together, split};
use super::{bind, legalise};
use crate::device::Device;
use crate::error::{Error, Result};
use llmrt_abi::{Reason, types::Verdict};
use llmrt_graph::Graph;
use llmrt_graph::rows::{NeuronSplit, Part, layer_of};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

/// A graph with devices, ready to get memory.
pub struct Resolved {
    /// With composite nodes taken apart where that was needed.
    pub graph: Graph,
    /// One device per node.
    pub placement: Placement,
    /// In execution order.
    pub splits: Vec<Split>,
    /// Devices that put parts together, by rank; none where copies do it.
    pub group: Vec<DeviceIdx>,
    /// Per device, the different workspaces of its nodes, in bytes.
    pub workspaces: Vec<BTreeSet<u64>>,
    /// The same in words.
    pub report: Report,
}

/// What is known before a graph is placed.
#[derive(Clone, Default)]
pub struct PlacementState {
    /// Weights and states that have memory: name to devices.
    pub homes: HashMap<String, Vec<DeviceIdx>>,
    /// Per device, bytes free for new weights and states; `None`: no limit.
    pub budget: Vec<Option<u64>>,
    /// Nodes a device claimed and then refused.
    pub refused: HashSet<(DeviceIdx, Signature)>,
    /// How devices share the graph.
    pub sharing: Sharing,
}

/// How devices share graphs: a model's plan and what runs it have the same.
#[derive(Clone, Default)]
pub struct Sharing {
    /// By layers or by rows.
    pub split: SplitMode,
    /// Whether they put parts together themselves.
    pub collectives: Collectives,
    /// Weights that are for one device, by name.
    pub assigned: Arc<HashMap<String, DeviceIdx>>,
    /// The neurons of each device, of networks that are in parts by lists.
    pub neurons: Arc<NeuronSplit>,
}

/// A node's signature: op, params, dtypes and dims of sources and result.
pub type Signature = (u32, Vec<u8>, Vec<(u32, [u64; 4])>);

/// The signature of a node.
pub fn signature(g: &Graph, node: usize) -> Signature {
    let n = &g.nodes[node];
    let shapes = n.src.iter().flatten().chain([&n.dst]).map(|&t| (g.def(t).dtype.id(), g.ne(t))).collect();
    (n.op.id(), n.params.clone(), shapes)
}

/// Places a graph on `devices`, first choice first, the baseline last. A device that gives no verdict gets no node,
/// and the report has its error; only the baseline's failure is one of the graph.
pub fn resolve(g: &Graph, devices: &[Arc<Device>], known: &PlacementState) -> Result<Resolved> {
    let mut failed = BTreeMap::new();
    let mut graph = match known.sharing.neurons.layers.is_empty() {
        true => g.clone(),
        false => g.split_neurons(&known.sharing.neurons),
    };
    let mut verdicts = all_verdicts(&graph, devices, known, &mut failed)?;
    let mut n_legalised = 0;
    for d in 0..devices.len() {
        let is_refused = |i: &usize| meant_for(&graph, *i) == d && verdicts[d][*i].support == 0;
        let refused: HashSet<_> =
            (0..graph.nodes.len()).filter(is_refused).map(|i| graph.nodes[i].dst).collect();
        if refused.is_empty() {
            continue;
        }
        let legal = legalise::legalise(&graph, &refused, |parts, n| {
            let tail = parts.nodes.len() - n;
            let verdicts = verdicts_of(parts, &devices[d], d, known);
            verdicts.is_ok_and(|v| v[tail..].iter().all(|v| v.support == 1 || v.support == 3))
        });
        if let Some((legal, n)) = legal {
            (graph, n_legalised) = (legal, n_legalised + n);
            verdicts = all_verdicts(&graph, devices, known, &mut failed)?;
        }
    }
    let (mut sharing, mut joins, mut group) = (Vec::new(), Vec::new(), Err(String::new()));
    if known.sharing.split == SplitMode::Rows {
        sharing = layers::equals(&verdicts);
        group = known.sharing.collectives.among(devices, &sharing);
        let parts = graph.split_rows(sharing.len(), group.is_ok());
        (graph, joins) = (parts.graph, parts.joins);
        verdicts = all_verdicts(&graph, devices, known, &mut failed)?;
    }
    let facts = Facts {
        verdicts: &verdicts,
        homes: &known.homes,
        budget: &known.budget,
        assigned: &known.sharing.assigned,
    };
    let placement = place(&graph, &facts).map_err(|unplaceable| unsupported_op(&graph, &unplaceable))?;
    let (rows, broadcasts) = group.as_ref().map_or((false, false), |g| (g.gathers(), g.broadcasts()));
    let members = if group.is_ok() { sharing.clone() } else { Vec::new() };
    let splits = split(&graph, &placement, Together { group: &members, joins: &joins, rows, broadcasts });
    let names = devices.iter().map(|d| d.name().to_string()).collect();
    let mut report = Report::new(&graph, names, &splits, &placement.fallbacks);
    report.neurons = neurons_by_device(&graph, &placement, devices.len());
    report.n_legalised = n_legalised;
    report.by_copies = group.err().filter(|_| sharing.len() > 1);
    report.failed = failed.into_values().collect();
    let mut workspaces = vec![BTreeSet::new(); devices.len()];
    for (i, &d) in placement.node.iter().enumerate() {
        workspaces[d].extend(Some(verdicts[d][i].workspace).filter(|&n| n > 0));
    }
    Ok(Resolved { graph, placement, splits, group: members, workspaces, report })
}

/// The device that a node is for before any has answered: that of its part, or the first.
fn meant_for(g: &Graph, node: usize) -> DeviceIdx {
    layers::listed(g, &g.nodes[node]).unwrap_or(0)
}

/// Neurons of the networks that are in parts, by the device of each part's last product, and the bytes of the parts' weights.
fn neurons_by_device(g: &Graph, placement: &Placement, n_devices: usize) -> Vec<(u64, u64)> {
    let (mut rows, mut counted, mut parts) = (vec![(0, 0); n_devices], HashSet::new(), HashMap::new());
    for (node, &device) in g.nodes.iter().zip(&placement.node) {
        for &t in node.src.iter().flatten() {
            let def = g.def(t);
            let (Some(list), Some(part)) = (&def.listed, Part::of_name(&def.name)) else { continue };
            if counted.insert((device, t)) {
                rows[device].1 += def.n_bytes();
            }
            parts.insert((layer_of(part.whole), part.index), (device, list.len() as u64));
        }
    }
    parts.into_values().for_each(|(device, n)| rows[device].0 += n);
    rows
}

/// One verdict per node of each device. A device in front of the baseline that fails is taken to refuse everything;
/// what it failed with goes to `failed`.
fn all_verdicts(
    g: &Graph,
    devices: &[Arc<Device>],
    known: &PlacementState,
    failed: &mut BTreeMap<DeviceIdx, String>,
) -> Result<Vec<Vec<Verdict>>> {
    let answer = |(d, device): (usize, &Arc<Device>)| match verdicts_of(g, device, d, known) {
        Err(e) if d + 1 < devices.len() => {
            failed.insert(d, e.to_string());
            Ok(vec![Verdict::no(Reason::Op); g.nodes.len()])
        }
        answer => answer,
    };
    devices.iter().enumerate().map(answer).collect()
}

/// Names the op, its first operand and what is in the way.
fn unsupported_op(g: &Graph, unplaceable: &Unplaceable) -> Error {
    let node = &g.nodes[unplaceable.node];
    let def = g.def(node.src.iter().flatten().next().map_or(node.dst, |&t| t));
    let operand =
        format!("tensor `{}` ({} {:?}): {} not supported", def.name, def.dtype, def.ne, unplaceable.reason);
    Error::UnsupportedOp { op: node.op.name(), operand }
}

/// One device's verdicts; what it refused after it had claimed it is not supported.
fn verdicts_of(
    g: &Graph,
    device: &Arc<Device>,
    d: DeviceIdx,
    known: &PlacementState,
) -> Result<Vec<Verdict>> {
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
