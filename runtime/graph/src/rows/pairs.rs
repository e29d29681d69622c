//! Two products, the second of what functions of single numbers make of the first: `y = d f(u x)`. With the rows of u and the
//! columns of d dealt out alike, `y = Σ dᵢ f(uᵢ x)`, and nothing but the sum is exchanged. A gated network has two first
//! products, and one with a predictor a third, whose results pick the rows that the others multiply.

use super::{InParts, JoinKind, Share};
use crate::graph::{Graph, Node};
use crate::tensor::{Kind, Role, Tensor};
use llmrt_abi::op::GluParams;
use llmrt_abi::{DType, Op};
use std::collections::{BTreeSet, HashMap};

/// Nodes that stay in parts together, in order; the last one is the second product.
pub(super) struct Pair {
    pub nodes: Vec<usize>,
    /// The second product's matrix.
    pub down: Tensor,
    /// Numbers between both products.
    pub width: u64,
    /// Whether these are columns of that matrix, not rows.
    pub down_has_columns: bool,
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
    /// All pairs that `may_cut` accepts. Of two that share a node, as a predictor and the network that it is for, the one that
    /// ends later.
    pub(super) fn pairs(&self, may_cut: impl Fn(&Pair) -> bool) -> Vec<Pair> {
        let mut found: Vec<Pair> = Vec::new();
        for pair in (0..self.nodes.len()).filter_map(|second| self.pair(second)).filter(may_cut) {
            found.retain(|before| !before.nodes.iter().any(|&node| pair.contains(node)));
            found.push(pair);
        }
        found
    }

    fn pair(&self, second: usize) -> Option<Pair> {
        let node = &self.nodes[second];
        let down = self.multiplied(node).filter(|_| node.op != Op::MulMatSparse)?;
        let [columns, rows, n2, n3] = self.ne(down);
        let down_has_columns = node.op == Op::MulMat;
        let width = if down_has_columns { columns } else { rows };
        let mut nodes = BTreeSet::from([second]);
        let mut made_of = node.src[1..].iter().flatten();
        let is_pair = (n2, n3) == (1, 1)
            && self.only_multiplied(down)
            && made_of.all(|&t| self.gather(t, width, &mut nodes))
            && nodes.iter().all(|&i| i == second || self.is_read_in(&nodes, self.nodes[i].dst));
        is_pair.then(|| Pair { nodes: nodes.into_iter().collect(), down, width, down_has_columns })
    }

    /// Adds the nodes that make `t`, down to products; whether all of them may stay in parts.
    fn gather(&self, t: Tensor, width: u64, nodes: &mut BTreeSet<usize>) -> bool {
        let def = self.def(t);
        let is_plain = def.view.is_none() && def.kind == Kind::Computed && !def.output && def.ne[0] == width;
        let made: Vec<_> = (0..self.nodes.len()).filter(|&i| self.owner(self.nodes[i].dst) == t).collect();
        let (true, &[i]) = (is_plain, &made[..]) else { return false };
        if !nodes.insert(i) {
            return true;
        }
        let node = &self.nodes[i];
        if let Some(w) = self.multiplied(node) {
            let [_, rows, n2, n3] = self.ne(w);
            let is_first =
                node.op != Op::MulMatT && (rows, n2, n3) == (width, 1, 1) && self.only_multiplied(w);
            // The scores by which rows are picked.
            return is_first && node.src[2..].iter().flatten().all(|&t| self.gather(t, width, nodes));
        }
        let mut all = self.numbers_of(node, width).into_iter();
        all.len() > 0 && all.all(|t| self.gather(t, width, nodes))
    }

    /// Whether these nodes alone read a tensor.
    fn is_read_in(&self, nodes: &BTreeSet<usize>, t: Tensor) -> bool {
        let reads = |node: &Node| node.src.iter().flatten().any(|&src| self.owner(src) == t);
        (0..self.nodes.len()).all(|i| nodes.contains(&i) || !reads(&self.nodes[i]))
    }

    /// The sources of a function of single numbers, other than what it adds or multiplies of weights; none if the node is
    /// something else.
    fn numbers_of(&self, node: &Node, width: u64) -> Vec<Tensor> {
        let src: Vec<Tensor> = node.src.iter().flatten().copied().collect();
        let alike = |t: &Tensor| self.ne(*t) == self.ne(node.dst) && self.def(*t).kind != Kind::Weight;
        let found = match (node.op, &src[..]) {
            (
                Op::Silu
                | Op::Gelu
                | Op::GeluErf
                | Op::GeluQuick
                | Op::Relu
                | Op::Tanh
                | Op::Sigmoid
                | Op::Sqr
                | Op::Step
                | Op::Scale
                | Op::Threshold,
                [x],
            ) => vec![*x],
            (Op::Glu, [gate, up]) if GluParams::from_bytes(&node.params).is_some() => vec![*gate, *up],
            (Op::Add | Op::Mul, [x, vector]) if self.is_vector(*vector, width) => vec![*x],
            (Op::Mul, [x, scale]) if self.is_vector(*scale, 1) => vec![*x],
            (Op::Add | Op::Mul, [x, y]) => vec![*x, *y],
            _ => Vec::new(),
        };
        if found.iter().all(alike) { found } else { Vec::new() }
    }

    /// A weight of one number per row of the products.
    fn is_vector(&self, t: Tensor, width: u64) -> bool {
        let def = self.def(t);
        def.kind == Kind::Weight && def.dtype == DType::F32 && def.ne == [width, 1, 1, 1]
    }

    /// The weight matrix that a node multiplies, whole or by rows that it picks.
    pub(super) fn multiplied(&self, node: &Node) -> Option<Tensor> {
        let is_product = matches!(node.op, Op::MulMat | Op::MulMatSparse | Op::MulMatT);
        let w = node.src.first().copied().flatten().filter(|_| is_product)?;
        let def = self.def(w);
        let is_matrix = matches!(def.role, Role::Matrix | Role::MatrixOfZeros);
        (def.kind == Kind::Weight && is_matrix && def.view.is_none()).then_some(w)
    }
}

impl InParts {
    /// The pair's nodes for each share, in the order given, and the sum of the results in the order of the devices.
    pub(super) fn push_pair(&mut self, pair: &Pair, nodes: &[Node], shares: &[Share<'_>], together: bool) {
        let mut sums: Vec<_> =
            shares.iter().map(|share| (share.index, self.push_share(pair, nodes, share))).collect();
        sums.sort_by_key(|(index, _)| *index);
        let sums = sums.into_iter().map(|(_, sum)| sum).collect();
        self.join(JoinKind::Sum, sums, nodes[pair.last()].dst, together);
    }

    /// One device's part of a pair; results are named as parts of what the whole pair's nodes make.
    fn push_share(&mut self, pair: &Pair, nodes: &[Node], share: &Share<'_>) -> Tensor {
        let mut parts: HashMap<Tensor, Tensor> = HashMap::new();
        let mut last = Tensor(0);
        for &i in &pair.nodes {
            let node = &nodes[i];
            let by_columns = i == pair.last() && pair.down_has_columns;
            let g = &mut self.graph;
            let mut src = node.src.clone();
            for (at, t) in src.iter_mut().enumerate().filter_map(|(at, t)| Some((at, t.as_mut()?))) {
                let is_matrix = at == 0 && g.multiplied(node) == Some(*t);
                *t = match parts.get(t) {
                    Some(part) => *part,
                    None if is_matrix => share.of_matrix(g, *t, by_columns),
                    None if g.is_vector(*t, pair.width) => share.of_vector(g, *t),
                    None => *t,
                };
            }
            last = g.push(node.op, &src, &node.params);
            let name = share.name(&g.def(node.dst).name);
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
    use crate::rows::{Cut, Part};
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
            Some(part @ Part { cut: Cut::Rows(_), .. }) => (0, part.range(WIDTH).unwrap().start, ne[0]),
            Some(part) => (part.range(WIDTH).unwrap().start, 0, WIDTH),
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
