//! Two devices on one model, node by node: both get equal operands, those that the first computed.

use crate::compare::{self, Difference};
use crate::l3_ops;
use crate::outcome::{Trouble, Verdict, lacking};
use crate::problem::Problem;
use crate::recorded;
use crate::stage::Stage;
use llmrt_abi::{DType, Reason};
use llmrt_graph::reference::Memory;
use llmrt_graph::{Graph, Kind, Tensor};
use llmrt_host::load::ModelFiles;
use llmrt_host::{Device, Stream};
use llmrt_models::Model;
use std::sync::Arc;

/// What came of one node.
#[derive(Clone, Debug)]
pub struct NodeDiff {
    /// Its row in the graph.
    pub row: usize,
    /// Name of its op.
    pub op: &'static str,
    /// Name of its result.
    pub name: String,
    /// Types and dims.
    pub shapes: String,
    /// How far the second device's result is from the first's; or why it has none: it refused, or it failed.
    pub difference: Result<Difference, Trouble>,
    /// The largest NMSE that is right.
    pub limit: f64,
}

impl NodeDiff {
    /// Whether the second device computed something else, or failed.
    pub fn is_over(&self) -> bool {
        match &self.difference {
            Ok(d) => d.nmse.is_nan() || d.nmse > self.limit,
            Err(trouble) => matches!(trouble, Trouble::Wrong(_)),
        }
    }

    /// Whether the second device refuses such a node.
    pub fn is_refused(&self) -> bool {
        matches!(self.difference, Err(Trouble::Lacking(_)))
    }
}

/// Runs `tokens` as one step of a model on both devices. `visit` gets every node with its operands, and returns whether
/// to go on. Needs the first device to run every node.
pub fn diff(
    [a, b]: [&Arc<Device>; 2],
    files: &ModelFiles,
    tokens: &[i32],
    visit: &mut dyn FnMut(NodeDiff, &Problem) -> bool,
) -> Result<(), String> {
    let find = |name: &str| files.model.tensor(name).map(|t| (t.dtype, t.ne));
    let model = Model::new(&files.model.metadata, find).map_err(|e| e.to_string())?;
    let n_tokens = tokens.len() as u64;
    let step = recorded::step(&model, n_tokens, DType::F16)?;
    let g = &step.graph;
    let streams = [stream(a)?, stream(b)?];
    let mut memory = Memory::new();
    for (t, ints) in recorded::integers(&step, n_tokens, 0, tokens) {
        memory.set_bytes(t, ints.iter().flat_map(|i| i.to_le_bytes()).collect());
    }
    for (row, node) in g.nodes.iter().enumerate() {
        let name = g.def(node.dst).name.clone();
        let at = |why: String| format!("node {row}, {} `{name}`: {why}", node.op);
        let mut graph = g.clone();
        graph.nodes = vec![node.clone()];
        let limit = recorded::limit(g, node);
        let given = operands(g, row, &memory, files).map_err(at)?;
        let problem = Problem { name: name.clone(), graph, given, nmse: limit };
        let first = run(a, &streams[0], &problem).map_err(|trouble| match trouble {
            Trouble::Wrong(why) => at(why),
            Trouble::Lacking(why) => at(format!("{} does not run it ({why}); choose another --a", a.name())),
        })?;
        let difference =
            run(b, &streams[1], &problem).map(|second| compare::difference(g.def(node.dst), &first, &second));
        memory.set_bytes(problem.target(), first);
        let op = node.op.name();
        let shapes = problem.shapes();
        if !visit(NodeDiff { row, op, name: problem.name.clone(), shapes, difference, limit }, &problem) {
            break;
        }
    }
    Ok(())
}

fn stream(device: &Arc<Device>) -> Result<Stream, String> {
    device.stream(0).map_err(|e| e.to_string())
}

/// The bytes of a node's operands: weights of the file, states that start as zeros, results of nodes before it.
fn operands(g: &Graph, row: usize, memory: &Memory, files: &ModelFiles) -> Result<Memory, String> {
    let mut given = Memory::new();
    let node = &g.nodes[row];
    let owners = node.src.iter().flatten().chain([&node.dst]).map(|&t| g.owner(t));
    for t in owners {
        if let Some(bytes) = bytes(g, t, memory, files)? {
            given.set_bytes(t, bytes);
        }
    }
    Ok(given)
}

fn bytes(g: &Graph, t: Tensor, memory: &Memory, files: &ModelFiles) -> Result<Option<Vec<u8>>, String> {
    let def = g.def(t);
    Ok(match (memory.bytes(t), def.kind) {
        (Some(bytes), _) => Some(bytes.to_vec()),
        (None, Kind::Weight) => {
            let tensor = files.tensor(&def.name).map_err(|e| e.to_string())?;
            Some(files.bytes(tensor).map_err(|e| e.to_string())?)
        }
        (None, Kind::State) => Some(vec![0; def.n_bytes() as usize]),
        (None, Kind::Input) => return Err(format!("input `{}` has no value", def.name)),
        (None, Kind::Computed) => None,
    })
}

/// The bytes of the result's tensor, if nothing around it was changed.
fn run(device: &Arc<Device>, stream: &Stream, problem: &Problem) -> Verdict<Vec<u8>> {
    let stage = Stage::new(device, problem)?;
    let answer = device.supports(&stage.graph, 0..1)?[0];
    if answer.support == 0 {
        return lacking(Reason::from_code(answer.reason).to_string());
    }
    let after = l3_ops::compute(stream, &stage)?;
    stage.check_surroundings(problem, &after)?;
    Ok(stage.target(problem, &after).to_vec())
}
