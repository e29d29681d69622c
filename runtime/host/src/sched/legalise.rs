//! Takes composite ops apart where the wanted device refuses the whole but runs every part.

use llmrt_graph::{Graph, Node, Tensor, ops};
use std::collections::HashMap;

/// A graph with composite nodes replaced, and where the replaced results went.
pub struct Legalised {
    /// The graph to place.
    pub graph: Graph,
    /// Old result to new result.
    pub renamed: HashMap<Tensor, Tensor>,
}

/// The graph with composite nodes replaced. `refused[i]` says that the wanted device refuses node `i`; `runs_all`
/// answers whether it runs every node of a graph, of which the last `n` are asked for.
/// `None` when nothing changes.
pub fn legalise(g: &Graph, refused: &[bool], mut runs_all: impl FnMut(&Graph, usize) -> bool) -> Option<Legalised> {
    let candidate = |i: usize| refused[i] && ops::rules(g.nodes[i].op).is_composite();
    if !(0..g.nodes.len()).any(candidate) {
        return None;
    }
    let mut out = g.clone();
    out.nodes.clear();
    let mut renamed: HashMap<Tensor, Tensor> = HashMap::new();
    for (i, node) in g.nodes.iter().enumerate() {
        let node = with_sources(node, &renamed, &mut out);
        if candidate(i)
            && let Some((parts, result)) = take_apart(&out, &node)
            && runs_all(&parts, parts.nodes.len() - out.nodes.len())
        {
            out = parts;
            keep_identity(&mut out, node.dst, result);
            renamed.insert(node.dst, result);
        } else {
            out.nodes.push(node);
        }
    }
    (!renamed.is_empty()).then_some(Legalised { graph: out, renamed })
}

/// The graph with the node's parts appended, and the tensor that replaces its result.
fn take_apart(g: &Graph, node: &Node) -> Option<(Graph, Tensor)> {
    let mut parts = g.clone();
    let result = ops::rules(node.op).decompose(&mut parts, node)?;
    let parts = parts.finish().ok()?;
    (parts.ne(result) == g.ne(node.dst) && parts.def(result).is_contiguous()).then_some((parts, result))
}

/// Name, and whether the host reads it, go from the old result to the new one.
fn keep_identity(g: &mut Graph, old: Tensor, new: Tensor) {
    let (name, output) = (g.def(old).name.clone(), g.def(old).output);
    let def = &mut g.tensors[new.0 as usize];
    def.name = name;
    def.output = output;
    g.tensors[old.0 as usize].output = false;
}

/// The node reading replaced results: directly, or through views, which are moved to the new owner.
fn with_sources(node: &Node, renamed: &HashMap<Tensor, Tensor>, g: &mut Graph) -> Node {
    let mut node = node.clone();
    for src in node.src.iter_mut().flatten() {
        if let Some(new) = renamed.get(src) {
            *src = *new;
        } else if let Some((base, offset)) = g.def(*src).view
            && let Some(new) = renamed.get(&base)
        {
            let (owner, new_offset) = g.def(*new).view.unwrap_or((*new, 0));
            g.tensors[src.0 as usize].view = Some((owner, new_offset + offset));
        }
    }
    node
}
