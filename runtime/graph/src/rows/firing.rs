//! Which neurons of divided networks fire: the numbers between the products of each part, as results that can be read.

use super::{Part, layer_of};
use crate::graph::{Graph, Node};
use crate::ops::Pick;
use crate::tensor::{Kind, Tensor};
use llmrt_abi::{DType, Op};

/// The neurons of one part of a divided network, by place in its list and by token.
#[derive(Clone, PartialEq, Debug)]
pub struct Firing {
    /// The number N of `blk.N`.
    pub layer: usize,
    /// Which part, of one device.
    pub part: usize,
    /// What the neurons give: F32, [neurons, tokens], without gaps.
    pub values: Tensor,
    /// The scores that have to pass as well, of the same shape.
    pub scores: Option<(Tensor, Pick)>,
}

impl Firing {
    /// Whether a neuron with this value and this score fires.
    pub fn fires(&self, value: f32, score: Option<f32>) -> bool {
        let is_picked = |(_, pick): &(Tensor, Pick)| score.is_some_and(|score| pick.passes(score));
        value != 0.0 && self.scores.as_ref().is_none_or(is_picked)
    }

    fn tensors(&self) -> impl Iterator<Item = Tensor> {
        std::iter::once(self.values).chain(self.scores.map(|(t, _)| t))
    }
}

impl Graph {
    /// Makes results of what the neurons of each part of a divided network give. Graphs without such parts stay as they are.
    pub fn firings(&mut self) -> Vec<Firing> {
        let firing = |node: &Node| {
            let [Some(w), Some(values)] = *node.src.first_chunk()? else { return None };
            let def = self.def(w);
            let part = Part::of_name(&def.name).filter(Part::is_listed)?;
            let by_neurons = match node.op {
                Op::MulMatT => part.is_of_rows(),
                Op::MulMat => !part.is_of_rows(),
                _ => false,
            };
            let scores = node.src.get(2).copied().flatten();
            let scores = scores.and_then(|t| Some((t, Pick::read(&node.params).ok()?)));
            let is_readable = |t: Tensor| {
                let def = self.def(t);
                def.kind == Kind::Computed
                    && def.dtype == DType::F32
                    && def.is_contiguous()
                    && def.view.is_none()
            };
            let found = Firing { layer: layer_of(part.whole)?, part: part.index, values, scores };
            let is_it = by_neurons && def.kind == Kind::Weight && found.tensors().all(is_readable);
            is_it.then_some(found)
        };
        let found: Vec<Firing> = self.nodes.iter().filter_map(firing).collect();
        found.iter().flat_map(Firing::tensors).for_each(|t| self.tensors[t.0 as usize].output = true);
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::NeuronSplit;
    use crate::{Activation, Role};
    use std::collections::BTreeMap;
    use std::sync::Arc;

    #[test]
    fn each_part_of_a_divided_network_shows_what_its_neurons_give() {
        let mut g = Graph::new();
        let x = g.input("x", DType::F32, &[4, 3]);
        let matrix = |g: &mut Graph, name: &str| {
            g.weight(&format!("blk.2.{name}.weight"), DType::F32, &[4, 8], Role::Matrix)
        };
        let (gate, up, down) = (matrix(&mut g, "gate"), matrix(&mut g, "up"), matrix(&mut g, "down_t"));
        let gate = g.mul_mat(gate, x);
        let up = g.mul_mat_sparse(up, x, gate, Pick::Above(0.0));
        let h = g.glu(Activation::Relu, gate, Some(up));
        let y = g.mul_mat_t(down, h, Some((gate, Pick::Above(0.0))));
        g.output(y, "y");
        let mut whole = g.finish().unwrap();
        assert_eq!(whole.firings(), []);
        let lists = [&[1u32, 6][..], &[], &[0, 2, 3, 4, 5, 7]].map(Arc::from);
        let mut parts = whole.split_neurons(&NeuronSplit { layers: BTreeMap::from([(2, lists.into())]) });
        let firings = parts.firings();
        let shape = |t: Tensor| (parts.ne(t), parts.def(t).output);
        let found: Vec<_> = firings.iter().map(|f| (f.layer, f.part, shape(f.values))).collect();
        assert_eq!(found, [(2, 0, ([2, 3, 1, 1], true)), (2, 2, ([6, 3, 1, 1], true))]);
        let score = |f: &Firing| shape(f.scores.unwrap().0);
        assert_eq!(
            firings.iter().map(score).collect::<Vec<_>>(),
            found.iter().map(|f| f.2).collect::<Vec<_>>()
        );
        let fires = |value, score| firings[0].fires(value, Some(score));
        assert_eq!([fires(2.0, 1.0), fires(2.0, 0.0), fires(0.0, 1.0)], [true, false, false]);
    }
}
