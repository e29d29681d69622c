//! What a model needs before anything is loaded: where it would run, and how many bytes of what on which device.

use crate::engine::{EngineOptions, is_showable};
use crate::error::Result;
use llmrt_abi::DType;
use llmrt_graph::{Graph, Kind, Tensor};
use llmrt_host::Device;
use llmrt_host::load::{ModelFiles, Want};
use llmrt_host::sched::executor::{arenas, budget};
use llmrt_host::sched::report::Report;
use llmrt_host::sched::resolve::{Known, Resolved, resolve};
use llmrt_models::Model;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A model and the placement of its largest step.
pub struct Blueprint {
    /// The model, for the context asked for.
    pub model: Model,
    /// Its largest step, placed.
    pub resolved: Resolved,
}

/// Bytes on one device.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DevicePlan {
    /// The device's id.
    pub device: String,
    /// Weights.
    pub weights: u64,
    /// KV cache.
    pub kv: u64,
    /// Compute memory of the largest step.
    pub compute: u64,
    /// Host memory on the way of the largest copy.
    pub staging: u64,
    /// Free now, if the device says.
    pub free: Option<u64>,
}

/// Bytes per device, first choice first.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MemoryPlan {
    /// One row per device.
    pub devices: Vec<DevicePlan>,
    /// Bytes of KV cache that one token takes.
    pub kv_bytes_per_token: u64,
}

impl Blueprint {
    /// Reads the model and places its largest step. Loads nothing.
    pub fn new(devices: &[Arc<Device>], files: &ModelFiles, options: &EngineOptions) -> Result<Blueprint> {
        let find = |name: &str| files.model.tensor(name).map(|t| (t.dtype, t.ne));
        let mut model = Model::new(&files.model.metadata, find)?;
        model.set_context(options.n_ctx as u64);
        let step = model.graph(&options.shape(options.n_batch, 1, 1))?;
        let known = Known { budget: budget(devices)?, ..Known::default() };
        let mut resolved = resolve(&step.graph, devices, &known)?;
        resolved.report.compute_bytes = arenas(&resolved, devices)?.iter().map(|a| a.total).collect();
        Ok(Blueprint { model, resolved })
    }

    /// The weights, each on every device that a node wants it on.
    pub fn wants(&self, devices: &[Arc<Device>]) -> Vec<Want> {
        let g = &self.resolved.graph;
        let pairs = self.weights();
        pairs.into_iter().map(|(row, t)| Want::new(g.def(t), row, &devices[row])).collect()
    }

    fn weights(&self) -> BTreeSet<(usize, Tensor)> {
        let g = &self.resolved.graph;
        let mut pairs = BTreeSet::new();
        for (node, &device) in g.nodes.iter().zip(&self.resolved.placement.node) {
            let owners = node.src.iter().flatten().map(|&t| g.owner(t));
            pairs.extend(owners.filter(|t| g.def(*t).kind == Kind::Weight).map(|t| (device, t)));
        }
        pairs
    }
}

/// Where a model would run: the report of its decode step, and that step's graph as text.
pub fn placement(
    devices: &[Arc<Device>],
    files: &ModelFiles,
    options: &EngineOptions,
) -> Result<(Report, String)> {
    let decode = EngineOptions { n_batch: 1, ..options.clone() };
    let blueprint = Blueprint::new(devices, files, &decode)?;
    let text = blueprint.resolved.graph.to_string();
    Ok((blueprint.resolved.report, text))
}

/// The bytes a model needs on each device.
pub fn memory_plan(
    devices: &[Arc<Device>],
    files: &ModelFiles,
    options: &EngineOptions,
) -> Result<MemoryPlan> {
    let blueprint = Blueprint::new(devices, files, options)?;
    let resolved = &blueprint.resolved;
    let g = &resolved.graph;
    let mut rows: Vec<DevicePlan> = devices
        .iter()
        .zip(&resolved.report.compute_bytes)
        .map(|(device, &compute)| DevicePlan {
            device: device.name().to_string(),
            compute,
            free: device.memory().ok().map(|(free, _)| free),
            ..DevicePlan::default()
        })
        .collect();
    for (device, t) in blueprint.weights() {
        rows[device].weights += g.def(t).n_bytes();
    }
    let states: BTreeMap<_, _> =
        resolved.placement.home.iter().filter(|(t, _)| g.def(**t).kind == Kind::State).collect();
    for (t, &device) in states {
        rows[device].kv += g.def(*t).n_bytes();
    }
    for split in &resolved.splits {
        let largest = split.copies.iter().map(|(t, _)| g.def(*t).n_bytes()).max().unwrap_or(0);
        rows[split.device].staging = rows[split.device].staging.max(largest);
    }
    let kv = blueprint.model.kv_layout(options.k_type, options.v_type)?;
    Ok(MemoryPlan { devices: rows, kv_bytes_per_token: kv.bytes_per_token })
}

/// The graph with every node's result kept to the end, and those results, in order of execution.
pub(crate) fn every_result_kept(mut g: Graph) -> (Graph, Vec<Tensor>) {
    let results: Vec<Tensor> = g.nodes.iter().map(|n| n.dst).filter(|&t| is_showable(&g, t)).collect();
    for t in &results {
        g.tensors[t.0 as usize].output = true;
    }
    (g, results)
}

/// The KV cache types that attention takes.
pub const KV_TYPES: [DType; 3] = [DType::F16, DType::F32, DType::Q8_0];
