//! Taking composite nodes apart into simpler ones, for devices that have only those.

use crate::graph::{Graph, Node};
use crate::ops;
use crate::tensor::Tensor;

impl Graph {
    /// The graph with the nodes that `take_apart` selects replaced by the nodes of their decomposition, as far as they
    /// have one; `take_apart` is called for those as well. All tensors keep their numbers; new ones come after them.
    pub fn expand(&self, mut take_apart: impl FnMut(&Graph, &Node) -> bool) -> Graph {
        let mut out = self.clone();
        for node in std::mem::take(&mut out.nodes) {
            expand_node(&mut out, node, &mut take_apart);
        }
        out
    }

    /// Lets the new tensor `made` and its views have the bytes of `dst`, so that readers of `dst` are unaffected.
    pub(crate) fn put_in_place_of(&mut self, made: Tensor, dst: Tensor) {
        let owner = self.owner(made);
        for (i, def) in self.tensors.iter_mut().enumerate() {
            match &mut def.view {
                Some((base, _)) if *base == owner => *base = dst,
                None if i == owner.0 as usize => def.view = Some((dst, 0)),
                _ => {}
            }
        }
    }
}

fn expand_node(out: &mut Graph, node: Node, take_apart: &mut impl FnMut(&Graph, &Node) -> bool) {
    let first = out.nodes.len();
    if ops::rules(node.op).is_composite()
        && take_apart(out, &node)
        && let Some(made) = ops::rules(node.op).decompose(out, &node)
    {
        let parts = out.nodes.split_off(first);
        out.put_in_place_of(made, node.dst);
        return parts.into_iter().for_each(|part| expand_node(out, part, take_apart));
    }
    out.nodes.truncate(first);
    out.nodes.push(node);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::Role;
    use crate::{Activation, plan};
    use llmrt_abi::{DType, op::MoeWeightsParams};

    /// Experts' weights, a gate and a norm, one after the other.
    fn graph() -> Graph {
        let mut g = Graph::new();
        let x = g.input("x", DType::F32, &[8, 2]);
        let w = g.weight("w", DType::F32, &[8], Role::Norm);
        let h = g.rms_norm(x, w, 1e-5);
        let h = g.glu(Activation::Silu, h, None); // [4, 2]
        let ids = g.top_k(h, 2);
        let p = MoeWeightsParams { gating: 2, normalise: 1, scale: 0.0 };
        let weights = g.moe_weights(h, ids, &p); // [1, 2, 2]
        let y = g.reshape(weights, &[2, 2]);
        let y = g.tanh(y);
        g.output(y, "y");
        g.finish().unwrap()
    }

    #[test]
    fn composite_nodes_become_simple_ones_in_their_place() {
        let ops = |g: &Graph| g.nodes.iter().map(|n| n.op.name()).collect::<Vec<_>>().join(" ");
        let g = graph().expand(|_, node| node.op.name() != "rms_norm");
        assert_eq!(ops(&g), "rms_norm silu mul top_k get_rows soft_max sum_rows scale relu scale div tanh");
        assert_eq!(
            ops(&graph().expand(|_, _| true)).split(' ').take(2).collect::<Vec<_>>(),
            ["rms_norm", "mul"]
        );
        assert_eq!(ops(&graph().expand(|_, _| false)), ops(&graph()));
    }

    #[test]
    fn readers_of_a_replaced_result_find_it_where_it_was() {
        let (g, whole) = (graph().expand(|_, _| true), graph());
        let mut results = vec![];
        for g in [&g, &whole] {
            let mut m = crate::reference::Memory::new();
            let x = (0..16).map(|i| (i as f32).sin()).collect();
            m.set(g, g.find("x").unwrap(), &crate::ops::value::Value::f32([8, 2, 1, 1], x)).unwrap();
            m.set(g, g.find("w").unwrap(), &crate::ops::value::Value::f32([8, 1, 1, 1], vec![1.0; 8]))
                .unwrap();
            crate::reference::run(g, &mut m).unwrap();
            results.push(m.get(g, g.find("y").unwrap()).unwrap());
        }
        let near = results[0].floats().iter().zip(results[1].floats()).all(|(a, b)| (a - b).abs() < 1e-6);
        assert!(near, "{results:?}");
    }

    #[test]
    fn views_are_never_of_views_and_every_result_is_planned() {
        let g = graph().expand(|_, _| true);
        assert!(g.tensors.iter().filter_map(|t| t.view).all(|(base, _)| g.def(base).view.is_none()));
        let lives = plan::lifetimes(&g, 0..g.nodes.len());
        assert!(g.nodes.iter().all(|n| lives.iter().any(|l| l.tensor == g.owner(n.dst))));
    }
}
