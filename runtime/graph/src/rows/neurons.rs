//! Feed-forward networks whose neurons are dealt out by lists: each device computes what its neurons add to the result, from
//! its rows of gate, up and predictor and its rows or columns of down.

use super::pairs::Pair;
use super::{InParts, Share};
use crate::graph::{Graph, Node};
use crate::tensor::{Kind, Role, Tensor};
use llmrt_abi::Op;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The neurons of each device. The last device is the one whose work the host waits for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NeuronSplit {
    /// By the number N of `blk.N`: for each device, numbers in any order, which are together all neurons of the layer.
    pub layers: BTreeMap<usize, Vec<Arc<[u32]>>>,
}

impl NeuronSplit {
    /// The one that gives all neurons to the last device.
    pub fn all_on_last(&self) -> NeuronSplit {
        let of_layer = |(layer, lists): (&usize, &Vec<Arc<[u32]>>)| {
            let n: usize = lists.iter().map(|list| list.len()).sum();
            let mut lists = vec![Arc::<[u32]>::default(); lists.len()];
            if let Some(last) = lists.last_mut() {
                *last = (0..n as u32).collect();
            }
            (*layer, lists)
        };
        NeuronSplit { layers: self.layers.iter().map(of_layer).collect() }
    }

    /// The lists of the layer that a pair is in, if they fit its matrices: whole blocks of columns.
    fn of(&self, g: &Graph, pair: &Pair) -> Option<&[Arc<[u32]>]> {
        let lists = self.layers.get(&layer_of(&g.def(pair.down).name)?)?;
        let block = block_of(g, pair);
        let n: usize = lists.iter().map(|list| list.len()).sum();
        let fits = n as u64 == pair.width && lists.iter().all(|list| has_whole_blocks(list, block));
        fits.then_some(&lists[..])
    }
}

/// A feed-forward network whose neurons can be dealt out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Network {
    /// The number N of `blk.N`.
    pub layer: usize,
    /// How many there are.
    pub n_neurons: u64,
    /// Lists have whole blocks of so many, beginning at multiples of it.
    pub block: u64,
    /// The weights that belong to neurons.
    pub weights: Vec<String>,
    /// Bytes of all of them: rows and columns of gate, up, down, predictors and biases.
    pub bytes: u64,
    /// Of these, bytes that are read whichever neurons are active: gates without a predictor, and predictors.
    pub dense_bytes: u64,
    /// Whether those that give zeros need not be computed.
    pub is_sparse: bool,
}

/// Whether every number is in a run of `block` numbers that begins at a multiple of `block`.
fn has_whole_blocks(list: &[u32], block: usize) -> bool {
    let is_block = |run: &[u32]| {
        run[0].is_multiple_of(block as u32) && run.iter().zip(run[0]..).all(|(found, i)| *found == i)
    };
    list.len().is_multiple_of(block) && list.chunks(block).all(is_block)
}

fn block_of(g: &Graph, pair: &Pair) -> usize {
    if pair.down_has_columns { g.def(pair.down).dtype.block_elems() } else { 1 }
}

/// The N of `blk.N.…`.
pub fn layer_of(name: &str) -> Option<usize> {
    name.strip_prefix("blk.")?.split('.').next()?.parse().ok()
}

impl Graph {
    /// Whether a product need not read all of its weights, since much of what it multiplies is zero.
    pub fn is_sparse(&self) -> bool {
        self.nodes.iter().any(|node| self.skips(node))
    }

    fn skips(&self, node: &Node) -> bool {
        let is_of_zeros = |t: Tensor| self.def(t).role == Role::MatrixOfZeros;
        matches!(node.op, Op::MulMatSparse | Op::MulMatT)
            || node.src.iter().flatten().any(|&t| is_of_zeros(t))
    }

    /// The networks whose neurons can be dealt out, one of each layer that has one.
    pub fn networks(&self) -> Vec<Network> {
        let network = |pair: Pair| {
            let owned = |t: Tensor| self.def(t).kind == Kind::Weight && self.ne(t).contains(&pair.width);
            let nodes = pair.nodes.iter().map(|&i| &self.nodes[i]);
            let weights: BTreeSet<_> = nodes
                .clone()
                .flat_map(|node| node.src.iter().flatten().copied().filter(|&t| owned(t)))
                .collect();
            let dense =
                nodes.clone().filter(|node| !self.skips(node)).filter_map(|node| self.multiplied(node));
            let dense: BTreeSet<Tensor> = dense.collect();
            let dense = weights.iter().copied().filter(|t| dense.contains(t));
            Some(Network {
                layer: layer_of(&self.def(pair.down).name)?,
                n_neurons: pair.width,
                block: block_of(self, &pair) as u64,
                weights: weights.iter().map(|&t| self.def(t).name.clone()).collect(),
                bytes: weights.iter().map(|&t| self.def(t).n_bytes()).sum(),
                dense_bytes: dense.map(|t| self.def(t).n_bytes()).sum(),
                is_sparse: nodes.clone().any(|node| self.skips(node)),
            })
        };
        let mut found: Vec<Network> = self.pairs(|_| true).into_iter().filter_map(network).collect();
        found.dedup_by_key(|network| network.layer);
        found
    }

    /// The graph with the networks of these layers in parts, one of each device that has neurons of the layer, and a sum of
    /// them in the order of the devices. All tensors keep their numbers; new ones come after them. The last device's part
    /// comes last, so that the others have theirs before the host waits for it. Layers whose lists do not fit stay whole.
    pub fn split_neurons(&self, split: &NeuronSplit) -> Graph {
        let mut out = InParts { graph: self.clone(), joins: Vec::new() };
        let nodes = std::mem::take(&mut out.graph.nodes);
        let found = self.pairs(|pair| split.of(self, pair).is_some());
        for (i, node) in nodes.iter().enumerate() {
            let pair = found.iter().find(|pair| pair.contains(i));
            match pair.and_then(|pair| Some((pair, split.of(self, pair)?))) {
                None => out.graph.nodes.push(node.clone()),
                Some((pair, lists)) if pair.last() == i => {
                    let n = lists.len();
                    let shares = (1..n).chain([0]).filter(|d| d + 1 < n).chain([n - 1]);
                    let shares = shares.filter(|&d| !lists[d].is_empty());
                    let shares: Vec<_> = shares.map(|d| Share::listed(d, n, &lists[d])).collect();
                    out.push_pair(pair, &nodes, &shares, false);
                }
                // It comes with the last node of its pair.
                Some(_) => {}
            }
        }
        out.graph
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::value::Value;
    use crate::reference::{self, Memory};
    use crate::rows::Part;
    use crate::{Activation, Pick};
    use llmrt_abi::DType;

    const WIDTH: u64 = 64;
    const N_EMBD: u64 = 4;

    /// A network of PowerInfer with a predictor, one with the last matrix by columns, and one without a gate but with biases.
    fn graphs() -> [Graph; 3] {
        let matrix = |g: &mut Graph, name: &str, k, rows| {
            g.weight(&format!("blk.3.{name}.weight"), DType::F32, &[k, rows], Role::Matrix)
        };
        let vector = |g: &mut Graph, name: &str, n| {
            g.weight(&format!("blk.3.{name}.bias"), DType::F32, &[n], Role::Bias)
        };
        let begin = || {
            let mut g = Graph::new();
            let x = g.input("x", DType::F32, &[N_EMBD, 3]);
            (g, x)
        };

        let (mut g, x) = begin();
        let (fc1, fc2) = (matrix(&mut g, "fc1", N_EMBD, 8), matrix(&mut g, "fc2", 8, WIDTH));
        let hidden = g.mul_mat(fc1, x);
        let hidden = g.relu(hidden);
        let scores = g.mul_mat(fc2, hidden);
        let (gate, up) = (matrix(&mut g, "gate", N_EMBD, WIDTH), matrix(&mut g, "up", N_EMBD, WIDTH));
        let gate = g.mul_mat_sparse(gate, x, scores, Pick::NotBelow(0.5));
        let up = g.mul_mat_sparse(up, x, gate, Pick::Above(0.0));
        let h = g.glu(Activation::Relu, gate, Some(up));
        let down = matrix(&mut g, "down_t", N_EMBD, WIDTH);
        let y = g.mul_mat_t(down, h, Some((scores, Pick::NotBelow(0.5))));
        g.output(y, "y");
        let predicted = g.finish().unwrap();

        let (mut g, x) = begin();
        let (gate, up) = (matrix(&mut g, "gate", N_EMBD, WIDTH), matrix(&mut g, "up", N_EMBD, WIDTH));
        let gate = g.mul_mat(gate, x);
        let up = g.mul_mat_sparse(up, x, gate, Pick::Above(0.0));
        let gate = g.relu(gate);
        let gate = g.sqr(gate);
        let h = g.mul(gate, up);
        let down = matrix(&mut g, "down", WIDTH, N_EMBD);
        let y = g.mul_mat(down, h);
        g.output(y, "y");
        let exact = g.finish().unwrap();

        let (mut g, x) = begin();
        let up = matrix(&mut g, "up", N_EMBD, WIDTH);
        let bias = vector(&mut g, "up", WIDTH);
        let up = g.mul_mat(up, x);
        let h = g.add(up, bias);
        let h = g.relu(h);
        let down = matrix(&mut g, "down_t", N_EMBD, WIDTH);
        let y = g.mul_mat_t(down, h, None);
        let bias = vector(&mut g, "down_t", N_EMBD);
        let y = g.add(y, bias);
        g.output(y, "y");
        [predicted, exact, g.finish().unwrap()]
    }

    /// Whole numbers, so that sums in any order are exact; those of a part are those of its whole.
    fn numbers(g: &Graph, t: Tensor) -> Value {
        let def = g.def(t);
        let part = Part::of_name(&def.name);
        let whole = part.map_or(&def.name[..], |part| part.whole);
        let seed = whole.bytes().map(u64::from).sum::<u64>();
        let number = |r: u64, c: u64| ((seed + r * 131 + c * 17) * 7 % 11) as f32 - 5.0;
        let listed = |i: u64| def.listed.as_ref().map_or(i, |list| list[i as usize].into());
        let of_rows = part.is_some_and(|part| part.is_of_rows());
        let place = |r, c| if of_rows { (listed(r), c) } else { (r, listed(c)) };
        let all = (0..def.ne[1]).flat_map(|r| (0..def.ne[0]).map(move |c| place(r, c)));
        Value::f32(def.ne, all.map(|(r, c)| number(r, c)).collect())
    }

    fn result(g: &Graph) -> Value {
        let mut m = Memory::new();
        for (i, def) in g.tensors.iter().enumerate().filter(|(_, def)| def.kind != Kind::Computed) {
            m.set(g, Tensor(i as u32), &numbers(g, Tensor(i as u32)))
                .unwrap_or_else(|e| panic!("{}: {e}", def.name));
        }
        reference::run(g, &mut m).unwrap();
        m.get(g, g.find("y").unwrap()).unwrap()
    }

    fn split(lists: &[&[u32]]) -> NeuronSplit {
        NeuronSplit { layers: BTreeMap::from([(3, lists.iter().map(|list| Arc::from(*list)).collect())]) }
    }

    #[test]
    fn the_sum_of_the_devices_is_the_whole_whatever_neurons_each_has() {
        let all: Vec<u32> = (0..WIDTH as u32).collect();
        let of = |keep: &dyn Fn(u32) -> bool| all.iter().copied().filter(|&i| keep(i)).collect::<Vec<_>>();
        let (even, odd) = (of(&|i| i % 2 == 0), of(&|i| i % 2 == 1));
        let (few, most) = (of(&|i| i == 5), of(&|i| i != 5));
        let thirds = [of(&|i| i % 3 == 0), of(&|i| i % 3 == 1), of(&|i| i % 3 == 2)];
        for whole in graphs() {
            for lists in [
                &[&all[..], &[]][..],
                &[&[], &all],
                &[&even, &odd],
                &[&few, &most],
                &[&thirds[0], &thirds[1], &thirds[2]],
            ] {
                let parts = whole.split_neurons(&split(lists));
                assert_eq!(result(&parts), result(&whole), "{lists:?}");
                let n_parts = lists.iter().filter(|list| !list.is_empty()).count();
                let downs = [
                    Op::MulMatT,
                    whole.nodes.iter().rev().find(|n| whole.multiplied(n).is_some()).unwrap().op,
                ];
                let n_downs =
                    parts.nodes.iter().filter(|n| n.op == downs[1] && parts.ne(n.dst)[0] == N_EMBD).count();
                assert_eq!(n_downs, n_parts);
            }
        }
    }

    #[test]
    fn the_host_waits_for_the_last_device_when_the_others_have_their_work() {
        let [whole, ..] = graphs();
        let lists: Vec<Vec<u32>> =
            (0..3).map(|d| (0..WIDTH as u32).filter(|i| i % 3 == d).collect()).collect();
        let parts = whole.split_neurons(&split(&[&lists[0], &lists[1], &lists[2]]));
        let of_node = |t: Tensor| Part::of_name(&parts.def(t).name).map(|part| part.index);
        let mut order: Vec<_> = parts.nodes.iter().filter_map(|node| of_node(node.dst)).collect();
        order.dedup();
        assert_eq!(order, [1, 0, 2]);
    }

    #[test]
    fn networks_have_their_neurons_with_what_belongs_to_each() {
        let of = |g: &Graph| {
            let Network { layer, n_neurons, block, bytes, dense_bytes, is_sparse, .. } = g.networks()[0];
            assert_eq!((layer, n_neurons, block, is_sparse, g.networks().len()), (3, WIDTH, 1, true, 1));
            [bytes / WIDTH, dense_bytes / WIDTH]
        };
        // Four bytes a number: of gate, up, down and fc2 (8); of gate, up and down; of up, down and a bias.
        // Of these fc2; gate, and down, which is not for zeros here; up.
        let expected = [
            [4 * (3 * N_EMBD + 8), 4 * 8],
            [4 * 3 * N_EMBD, 4 * 2 * N_EMBD],
            [4 * (2 * N_EMBD + 1), 4 * N_EMBD],
        ];
        assert_eq!(graphs().each_ref().map(of), expected);
    }

    #[test]
    fn a_layer_whose_lists_do_not_fit_stays_whole() {
        let [_, exact, _] = graphs();
        let same = |split: &NeuronSplit| exact.split_neurons(split).nodes == exact.nodes;
        assert!(same(&split(&[&[0, 1], &[2]])), "not all neurons");
        assert!(same(&NeuronSplit::default()), "no lists");
        assert!(has_whole_blocks(&[32, 33, 34, 35, 0, 1, 2, 3], 4) && has_whole_blocks(&[], 4));
        assert!(
            !has_whole_blocks(&[0, 1, 2, 4], 4)
                && !has_whole_blocks(&[1, 2, 3, 4], 4)
                && !has_whole_blocks(&[0, 1], 4)
        );
    }
}
