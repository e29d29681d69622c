//! One node with the bytes of its operands: what an op is tested with, whatever it was made from.

use crate::outcome::{Verdict, wrong};
use llmrt_graph::ops::case::Case;
use llmrt_graph::reference::{self, Memory};
use llmrt_graph::{Graph, Node, Tensor};
use std::collections::BTreeSet;

/// One node with the bytes of its operands.
#[derive(Clone)]
pub struct Problem {
    /// What is special about it.
    pub name: String,
    /// The graph; its one node is the one under test.
    pub graph: Graph,
    /// Bytes of its operands, and of what its result overwrites.
    pub given: Memory,
    /// Largest normalised mean squared error that is right.
    pub nmse: f64,
}

impl Problem {
    /// The last node of a case. Nodes before it are run by their references, so that it is judged alone.
    pub fn of_case(case: &Case, seed: u64) -> Verdict<Problem> {
        let mut graph = case.graph.clone();
        let Some(node) = graph.nodes.pop() else { return wrong("the case has no node") };
        let mut given = case.values(seed)?;
        reference::run(&graph, &mut given)?;
        graph.nodes = vec![node];
        Ok(Problem { name: case.name.clone(), graph, given, nmse: case.nmse })
    }

    /// The node under test.
    pub fn node(&self) -> &Node {
        &self.graph.nodes[0]
    }

    /// The bytes after the node was run by its reference.
    pub fn expected(&self) -> Verdict<Memory> {
        let mut memory = self.given.clone();
        reference::run(&self.graph, &mut memory)?;
        Ok(memory)
    }

    /// The tensors whose bytes the node reads or writes, in order.
    pub fn owners(&self) -> BTreeSet<Tensor> {
        let node = self.node();
        node.src.iter().flatten().chain([&node.dst]).map(|&t| self.graph.owner(t)).collect()
    }

    /// The tensor that holds the result's bytes.
    pub fn target(&self) -> Tensor {
        self.graph.owner(self.node().dst)
    }

    /// Type and dims of operands and result, as people write them.
    pub fn shapes(&self) -> String {
        let show = |t: Tensor| {
            let def = self.graph.def(t);
            let dims: Vec<_> = def.ne[..def.n_dims()].iter().map(u64::to_string).collect();
            let strided = if def.is_contiguous() { "" } else { " strided" };
            format!("{} [{}]{strided}", def.dtype, dims.join(", "))
        };
        let node = self.node();
        let sources: Vec<_> = node.src.iter().map(|s| s.map_or("-".into(), show)).collect();
        format!("{} → {}", sources.join(", "), show(node.dst))
    }
}
