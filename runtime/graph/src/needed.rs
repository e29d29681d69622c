//! How much of the weights a token's products need: nodes that count what is multiplied with other numbers than zeros.

use crate::graph::{Graph, Node};
use crate::ops::Pick;
use crate::rows::{Part, layer_of};
use crate::tensor::{Kind, Role, Tensor};
use llmrt_abi::Op;
use std::collections::BTreeMap;

/// What one run of a graph needs of its matrices, and all that there is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Needed {
    /// F32, [1]: neurons that are picked, of all layers. Without layers that pick it is 0.
    pub neurons: Tensor,
    /// F32, [1]: bytes of rows and columns that are multiplied with other numbers than zeros.
    pub bytes: Tensor,
    /// All neurons of these layers.
    pub n_neurons: u64,
    /// Bytes of all matrices that are multiplied.
    pub n_bytes: u64,
}

impl Graph {
    /// Adds the nodes that count, to a graph of one token; `None` if none of its products skips anything.
    pub fn count_needed(&mut self) -> Option<Needed> {
        let matrix_of = |node: &Node| {
            let w = node.src.first().copied().flatten()?;
            let is_product = matches!(node.op, Op::MulMat | Op::MulMatSparse | Op::MulMatT);
            (is_product && self.def(self.owner(w)).kind == Kind::Weight).then_some(w)
        };
        let products: Vec<(Node, Tensor)> =
            self.nodes.iter().filter_map(|node| Some((node.clone(), matrix_of(node)?))).collect();
        let (mut whole, mut n_bytes) = (0, 0);
        // By part, as each is on a device: sums over devices come last.
        let mut sums = BTreeMap::<Option<usize>, Vec<Tensor>>::new();
        // A network's neurons are picked by its first product that picks; each part has some of them.
        let mut networks = BTreeMap::new();
        for (node, w) in products {
            let def = self.def(w);
            let (bytes, is_of_zeros) = (def.n_bytes(), def.role == Role::MatrixOfZeros);
            let network = layer_of(&def.name).filter(|_| node.op != Op::MulMat || has_neurons(&def.name));
            let part = Part::of_name(&def.name).map(|part| part.index);
            n_bytes += bytes;
            let Some((used, n)) = self.used(&node, is_of_zeros) else {
                whole += bytes;
                continue;
            };
            let sum = self.sum(used);
            if let Some(layer) = network {
                networks.entry((part, layer)).or_insert((sum, n));
            }
            let used = self.scale(sum, bytes as f32 / n as f32);
            sums.entry(part).or_default().push(used);
        }
        let mut total = |by_part: BTreeMap<Option<usize>, Vec<Tensor>>| {
            let of_parts =
                by_part.into_values().filter_map(|sums| sums.into_iter().reduce(|a, b| self.add(a, b)));
            let of_parts: Vec<Tensor> = of_parts.collect();
            of_parts.into_iter().reduce(|a, b| self.add(a, b))
        };
        let mut picked = BTreeMap::<_, Vec<Tensor>>::new();
        networks.iter().for_each(|((part, _), (sum, _))| picked.entry(*part).or_default().push(*sum));
        let (bytes, neurons) = (total(sums)?, total(picked));
        let bytes = self.scale_bias(bytes, 1.0, whole as f32);
        let neurons = neurons.unwrap_or_else(|| self.scale(bytes, 0.0));
        Some(Needed {
            neurons: self.output(neurons, "needed_neurons"),
            bytes: self.output(bytes, "needed_bytes"),
            n_neurons: networks.values().map(|(_, n)| n).sum(),
            n_bytes,
        })
    }

    /// 1 for each row or column of a product's matrix that is multiplied with other numbers than zeros, else 0, and how many
    /// there are; `None` for a product that needs all of them.
    fn used(&mut self, node: &Node, is_of_zeros: bool) -> Option<(Tensor, u64)> {
        let x = node.src.get(1).copied().flatten()?;
        let scores = node.src.get(2).copied().flatten();
        let pick = || Pick::read(&node.params).ok();
        match node.op {
            Op::MulMatSparse => Some((self.passes(scores?, pick()?), self.ne(scores?)[0])),
            Op::MulMatT => {
                let fires = self.is_not_zero(x);
                let used = match scores {
                    Some(scores) => {
                        let passes = self.passes(scores, pick()?);
                        self.mul(fires, passes)
                    }
                    None => fires,
                };
                Some((used, self.ne(x)[0]))
            }
            Op::MulMat if is_of_zeros => Some((self.is_not_zero(x), self.ne(x)[0])),
            _ => None,
        }
    }

    fn is_not_zero(&mut self, x: Tensor) -> Tensor {
        let size = self.abs(x);
        self.step(size)
    }
}

/// Whether the inputs of a matrix are neurons.
fn has_neurons(name: &str) -> bool {
    name.contains(".ffn_down")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::value::Value;
    use crate::reference::{self, Memory};
    use llmrt_abi::DType;

    #[test]
    fn rows_and_columns_for_zeros_are_not_needed() {
        let mut g = Graph::new();
        let x = g.input("x", DType::F32, &[4]);
        let gate = g.weight("blk.0.ffn_gate.weight", DType::F32, &[4, 8], Role::Matrix);
        let up = g.weight("blk.0.ffn_up.weight", DType::F32, &[4, 8], Role::Matrix);
        let down = g.weight("blk.0.ffn_down.weight", DType::F32, &[8, 4], Role::MatrixOfZeros);
        let open = g.mul_mat(gate, x);
        let values = g.mul_mat_sparse(up, x, open, Pick::Above(0.0));
        let h = g.relu(open);
        let h = g.mul(h, values);
        let y = g.mul_mat(down, h);
        g.output(y, "y");
        let needed = g.count_needed().unwrap();
        assert_eq!((needed.n_neurons, needed.n_bytes), (8, 3 * 8 * 4 * 4));
        let g = g.finish().unwrap();
        let mut m = Memory::new();
        // Gates of three neurons are positive, and one of these has zeros in `up`: its column of `down` is not needed.
        let of_neurons = |signs: [f32; 8]| signs.iter().flat_map(|&s| [s; 4]).collect::<Vec<f32>>();
        m.set(&g, x, &Value::f32([4, 1, 1, 1], vec![1.0; 4])).unwrap();
        let gates = of_neurons([1.0, -1.0, 1.0, 0.0, -1.0, -1.0, 1.0, -1.0]);
        m.set(&g, gate, &Value::f32([4, 8, 1, 1], gates)).unwrap();
        let ups = of_neurons([1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 1.0]);
        m.set(&g, up, &Value::f32([4, 8, 1, 1], ups)).unwrap();
        m.set(&g, down, &Value::f32([8, 4, 1, 1], vec![1.0; 32])).unwrap();
        reference::run(&g, &mut m).unwrap();
        assert_eq!(m.get(&g, needed.neurons).unwrap().floats(), [3.0]);
        assert_eq!(m.get(&g, needed.bytes).unwrap().floats(), [(8 * 16 + 3 * 16 + 2 * 16) as f32]);
    }

    #[test]
    fn a_graph_without_such_products_stays_as_it_is() {
        let mut g = Graph::new();
        let x = g.input("x", DType::F32, &[4]);
        let w = g.weight("w", DType::F32, &[4, 8], Role::Matrix);
        let y = g.mul_mat(w, x);
        g.output(y, "y");
        assert_eq!((g.count_needed(), g.nodes.len()), (None, 1));
    }
}
