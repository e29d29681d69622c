//! Decomposes composite ops where the assigned device refuses the whole but runs every part.

use llmrt_graph::{Graph, Kind, Node, Tensor, ops};
use std::collections::HashSet;

/// The graph with composite nodes replaced, and how many; `None` when nothing changes. `refused` names the results of
/// nodes that the assigned device refuses; `runs_all` answers whether it runs the last `n` nodes of a graph.
pub fn legalise(
    g: &Graph,
    refused: &HashSet<Tensor>,
    mut runs_all: impl FnMut(&Graph, usize) -> bool,
) -> Option<(Graph, usize)> {
    let mut n = 0;
    let elsewhere = states_elsewhere(g, refused);
    let legal = g.expand(|g, node| {
        if !refused.contains(&node.dst) || states(g, node).any(|t| elsewhere.contains(&t)) {
            return false;
        }
        let mut parts = g.clone();
        let n_before = parts.nodes.len();
        let made = ops::rules(node.op).decompose(&mut parts, node);
        let apart =
            made.is_some() && parts.error().is_none() && runs_all(&parts, parts.nodes.len() - n_before);
        n += usize::from(apart);
        apart
    });
    (n > 0).then_some((legal, n))
}

/// States that cannot live on the assigned device, since it refuses a node on them that has no parts. Decomposing
/// their readers would only copy them over in each step.
fn states_elsewhere(g: &Graph, refused: &HashSet<Tensor>) -> HashSet<Tensor> {
    let stuck = |n: &&Node| refused.contains(&n.dst) && !ops::rules(n.op).is_composite();
    g.nodes.iter().filter(stuck).flat_map(|n| states(g, n)).collect()
}

fn states<'a>(g: &'a Graph, node: &'a Node) -> impl Iterator<Item = Tensor> + 'a {
    node.src.iter().flatten().map(|&t| g.owner(t)).filter(|&t| g.def(t).kind == Kind::State)
}

#[cfg(test)]
mod tests {
    use super::*;
    use llmrt_abi::{DType, Op};
    use llmrt_graph::{Activation, Role};

    /// A norm with weight and a gated unit, legalised for a device that runs `claims`.
    fn legal(claims: &[Op]) -> String {
        let mut g = Graph::new();
        let x = g.input("x", DType::F32, &[8, 2]);
        let w = g.weight("w", DType::F32, &[8], Role::Norm);
        let h = g.rms_norm(x, w, 1e-5);
        let y = g.glu(Activation::Silu, h, None);
        g.output(y, "y");
        let refused = g.nodes.iter().filter(|n| !claims.contains(&n.op)).map(|n| n.dst).collect();
        let runs_all =
            |g: &Graph, n: usize| g.nodes[g.nodes.len() - n..].iter().all(|n| claims.contains(&n.op));
        let (g, n) = legalise(&g, &refused, runs_all).unwrap_or((g.clone(), 0));
        let ops: Vec<_> = g.nodes.iter().map(|n| n.op.name()).collect();
        format!("{n}: {}", ops.join(" "))
    }

    #[test]
    fn an_op_whose_parts_all_run_is_taken_apart() {
        assert_eq!(legal(&[Op::RmsNorm, Op::Silu, Op::Mul]), "1: rms_norm silu mul");
    }

    #[test]
    fn an_op_with_a_part_that_does_not_run_stays_whole_and_falls_back() {
        assert_eq!(legal(&[Op::Mul]), "0: rms_norm glu");
    }
}
