//! Graphs as devices see them, made from nodes that may have been tampered with.

use crate::outcome::Verdict;
use llmrt_graph::{Graph, Node, Tensor};
use llmrt_host::sched::bind::{Place, describe};
use llmrt_host::{NodeDesc, RawGraph, RawGraphBuilder, TensorDesc};
use std::collections::HashMap;

/// A node with nothing guaranteed.
#[derive(Clone, Debug)]
pub struct RawNode {
    /// Number of the op.
    pub op: u32,
    /// Version of its meaning.
    pub version: u32,
    /// Sources.
    pub src: Vec<Option<Tensor>>,
    /// Result.
    pub dst: Tensor,
    /// Params struct.
    pub params: Vec<u8>,
}

impl From<&Node> for RawNode {
    fn from(node: &Node) -> RawNode {
        let info = node.op.info();
        RawNode {
            op: info.id,
            version: info.version,
            src: node.src.clone(),
            dst: node.dst,
            params: node.params.clone(),
        }
    }
}

/// The nodes of a graph.
pub fn nodes(g: &Graph) -> Vec<RawNode> {
    g.nodes.iter().map(RawNode::from).collect()
}

/// A graph of these nodes, and the row of each tensor; `place` returns where tensors that own bytes have them.
pub fn build(
    g: &Graph,
    nodes: &[RawNode],
    place: &dyn Fn(Tensor) -> Option<Place>,
) -> Verdict<(RawGraph, HashMap<Tensor, u32>)> {
    let mut builder = RawGraphBuilder::new();
    let mut rows: HashMap<Tensor, u32> = HashMap::new();
    for node in nodes {
        for &t in node.src.iter().flatten().chain([&node.dst]) {
            let owner = g.owner(t);
            for t in [owner, t] {
                if !rows.contains_key(&t) {
                    let place = place(owner);
                    let def = g.def(t);
                    let view = def.view.and_then(|(base, offset)| Some((*rows.get(&base)?, offset)));
                    let row = builder.tensor(&TensorDesc { view, ..describe(def, place.as_ref()) })?;
                    rows.insert(t, row);
                }
            }
        }
        let srcs: Vec<Option<u32>> = node.src.iter().map(|s| s.map(|t| rows[&t])).collect();
        builder.node(&NodeDesc {
            op: node.op,
            op_version: node.version,
            dst: rows[&node.dst],
            srcs: &srcs,
            params: &node.params,
        })?;
    }
    Ok((builder.build(), rows))
}

/// The same without memory, as `supports` gets it first.
pub fn unbound(g: &Graph, nodes: &[RawNode]) -> Verdict<RawGraph> {
    Ok(build(g, nodes, &|_| None)?.0)
}
