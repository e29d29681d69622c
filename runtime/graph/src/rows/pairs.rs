//! Two products, the second of what functions of single numbers make of the first: `y = d f(u x)`. With the rows of u and the
//! columns of d dealt out alike, `y = Σ dᵢ f(uᵢ x)`, and nothing but the sum is exchanged. A gated network has two first
//! products.

use super::{Cut, GRAIN, InParts, JoinKind, Part};
use crate::graph::{Graph, Node};
use crate::tensor::{Kind, Tensor};
use llmrt_abi::op::GluParams;
use llmrt_abi::{DType, Op};
use std::collections::HashMap;

/// Nodes that stay in parts together, in order; the last one is the second product.
pub(super) struct Pair {
    nodes: Vec<usize>,
    /// Parts begin at multiples of this.
    grain: u64,
}

impl Pair {
    /// Its second product.
    pub fn last(&self) -> usize {
        self.nodes[self.nodes.len() - 1]
    }

    /// Whether a node is among them.
    pub fn contains(&self, node: usize) -> bool {
        self.nodes.contains(&node)
    }
}

impl Graph {
    /// All pairs that can be dealt out to `n` devices.
    pub(super) fn pairs(&self, n: usize) -> Vec<Pair> {
        (0..self.nodes.len()).filter_map(|second| self.pair(second, n)).collect()
    }

    fn pair(&self, second: usize, n: usize) -> Option<Pair> {
        let down = self.matrix_of(&self.nodes[second])?;
        let def = self.def(down);
        let grain = GRAIN.max(def.dtype.block_elems() as u64);
        let width = def.ne[0];
        let fits =
            width >= grain * n as u64 && (def.ne[2], def.ne[3]) == (1, 1) && self.only_multiplied(down);
        let mut nodes = vec![second];
        let x = self.nodes[second].src.get(1).copied().flatten()?;
        if !fits || !self.gather(x, width, n, &mut nodes) {
            return None;
        }
        nodes.sort_unstable();
        Some(Pair { nodes, grain })
    }

    /// Adds the nodes that make `x`, down to products; whether all of them may stay in parts.
    fn gather(&self, x: Tensor, width: u64, n: usize, nodes: &mut Vec<usize>) -> bool {
        let def = self.def(x);
        let is_plain = def.view.is_none() && def.kind == Kind::Computed && !def.output && def.ne[0] == width;
        let reads = self.nodes.iter().flat_map(|node| node.src.iter().flatten());
        let made: Vec<_> = (0..self.nodes.len()).filter(|&i| self.owner(self.nodes[i].dst) == x).collect();
        let (true, 1, &[i]) = (is_plain, reads.filter(|&&t| self.owner(t) == x).count(), &made[..]) else {
            return false;
        };
        nodes.push(i);
        let node = &self.nodes[i];
        if self.matrix_of(node).is_some_and(|w| self.is_splittable(w, n)) {
            return true;
        }
        let mut all = self.numbers_of(node, width).into_iter();
        all.len() > 0 && all.all(|t| self.gather(t, width, n, nodes))
    }

    /// The sources of a function of single numbers, other than vectors that it adds; none if the node is something else.
    fn numbers_of(&self, node: &Node, width: u64) -> Vec<Tensor> {
        let src: Vec<Tensor> = node.src.iter().flatten().copied().collect();
        let alike = |t: &Tensor| self.ne(*t) == self.ne(node.dst) && self.def(*t).kind != Kind::Weight;
        match (node.op, &src[..]) {
            (Op::Silu | Op::Gelu | Op::GeluErf | Op::GeluQuick | Op::Relu | Op::Tanh | Op::Sigmoid, [x]) => {
                vec![*x]
            }
            (Op::Glu, [gate, up]) if GluParams::from_bytes(&node.params).is_some() => vec![*gate, *up],
            (Op::Add, [x, bias]) if alike(x) && self.is_vector(*bias, width) => vec![*x],
            _ => Vec::new(),
        }
        .into_iter()
        .filter(alike)
        .collect()
    }

    /// A weight of one number per row of the products.
    fn is_vector(&self, t: Tensor, width: u64) -> bool {
        let def = self.def(t);
        def.kind == Kind::Weight && def.dtype == DType::F32 && def.ne == [width, 1, 1, 1]
    }
}

impl InParts {
    /// The pair's nodes for each device, the last one first, and their sum.
    pub(super) fn push_pair(&mut self, pair: &Pair, nodes: &[Node], n: usize) {
        let mut sums: Vec<Tensor> = (0..n).rev().map(|i| self.push_share(pair, nodes, (i, n))).collect();
        sums.reverse();
        self.join(JoinKind::Sum, sums, nodes[pair.last()].dst, true);
    }

    /// One device's part of a pair; results are named as parts of what the whole pair's nodes make.
    fn push_share(&mut self, pair: &Pair, nodes: &[Node], (index, n): (usize, usize)) -> Tensor {
        let g = &mut self.graph;
        let mut parts: HashMap<Tensor, Tensor> = HashMap::new();
        let mut last = Tensor(0);
        for &i in &pair.nodes {
            let node = &nodes[i];
            let (rows, columns) = (Cut::Rows(pair.grain), Cut::Columns(pair.grain));
            let cut = if i == pair.last() { columns } else { rows };
            let mut src = node.src.clone();
            for t in src.iter_mut().flatten() {
                *t = match parts.get(t) {
                    Some(part) => *part,
                    None if g.def(*t).kind != Kind::Weight => *t,
                    None if node.op == Op::MulMat => g.part(*t, index, n, cut),
                    None => {
                        let range = Part { whole: "", index, n, cut: rows }.range(g.ne(*t)[0]);
                        g.slice(*t, 0, range.start, range.end - range.start)
                    }
                };
            }
            last = g.push(node.op, &src, &node.params);
            let name = Part { whole: &g.def(node.dst).name, index, n, cut: Cut::Rows(GRAIN) }.name();
            g.name(last, name);
            parts.insert(node.dst, last);
        }
        last
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::value::Value;
    use crate::reference::{self, Memory};
    use crate::{Activation, Role};

    const WIDTH: u64 = 128;

    /// A network with a bias, and a gated one; whole numbers, so that sums in any order are exact but for the function.
    fn graph(gated: bool) -> Graph {
        let mut g = Graph::new();
        let x = g.input("x", DType::F32, &[4, 3]);
        let up = g.weight("up.weight", DType::F32, &[4, WIDTH], Role::Matrix);
        let down = g.weight("down.weight", DType::F32, &[WIDTH, 4], Role::Matrix);
        let h = g.mul_mat(up, x);
        let h = match gated {
            true => {
                let gate = g.weight("gate.weight", DType::F32, &[4, WIDTH], Role::Matrix);
                let gate = g.mul_mat(gate, x);
                g.glu(Activation::Relu, gate, Some(h))
            }
            false => {
                let bias = g.weight("up.bias", DType::F32, &[WIDTH], Role::Bias);
                let h = g.add(h, bias);
                g.relu(h)
            }
        };
        let y = g.mul_mat(down, h);
        let y = g.add(y, x);
        g.output(y, "y");
        g.finish().unwrap()
    }

    /// The numbers of a weight, or of a part of it.
    fn numbers(name: &str, ne: [u64; 4]) -> Value {
        let part = Part::of_name(name);
        let whole = part.map_or(name, |part| part.whole);
        let seed = whole.bytes().map(u64::from).sum::<u64>();
        let (c0, r0, columns) = match part {
            None => (0, 0, ne[0]),
            Some(part @ Part { cut: Cut::Rows(_), .. }) => (0, part.range(WIDTH).start, ne[0]),
            Some(part) => (part.range(WIDTH).start, 0, WIDTH),
        };
        let number = |r: u64, c: u64| ((seed + (r0 + r) * columns + c0 + c) * 7 % 11) as f32 - 5.0;
        let rows = (0..ne[1]).flat_map(|r| (0..ne[0]).map(move |c| (r, c)));
        Value::f32(ne, rows.map(|(r, c)| number(r, c)).collect())
    }

    fn result(g: &Graph) -> Value {
        let mut m = Memory::new();
        for (i, def) in g.tensors.iter().enumerate().filter(|(_, def)| def.kind != Kind::Computed) {
            m.set(g, Tensor(i as u32), &numbers(&def.name, def.ne)).unwrap();
        }
        reference::run(g, &mut m).unwrap();
        m.get(g, g.find("y").unwrap()).unwrap()
    }

    #[test]
    fn sums_of_parts_are_the_whole() {
        for gated in [false, true] {
            let whole = graph(gated);
            for n in [2, 3, 4] {
                let parts = whole.split_rows(n, true);
                assert_eq!(result(&parts.graph), result(&whole), "gated: {gated}, {n} parts");
                let [join] = &parts.joins[..] else { panic!("{:?}", parts.joins) };
                assert_eq!((join.kind, join.parts.len(), join.nodes.len()), (JoinKind::Sum, n, n - 1));
                let name = |t: &Tensor| parts.graph.def(*t).name.clone();
                let ranks: Vec<_> =
                    join.parts.iter().map(|t| Part::of_name(&name(t)).unwrap().index).collect();
                assert_eq!(ranks, (0..n).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn a_result_that_is_read_elsewhere_stays_whole_and_its_product_is_in_rows() {
        let mut g = graph(true);
        let h = g.nodes.iter().find(|n| n.op == Op::Glu).unwrap().dst;
        g.output(h, "h");
        let parts = g.split_rows(2, true);
        let kinds: Vec<_> = parts.joins.iter().map(|join| join.kind).collect();
        assert_eq!(kinds, [JoinKind::Rows, JoinKind::Rows], "gate and up; down has too few rows");
    }
}
