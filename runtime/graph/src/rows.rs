//! Products taken apart by rows of their weights, so that several devices hold and multiply a part each:
//! `y = w x` becomes `y = concat(w₀ x, w₁ x, …)` with the rows of w dealt out in order; [`pairs`] has products whose results
//! stay apart until a second one adds them up.

mod firing;
mod neurons;
mod pairs;
mod part;
mod share;

pub use firing::Firing;
pub use neurons::{Network, NeuronSplit, layer_of};
pub use part::{Cut, Part};

use crate::graph::{Graph, Node};
use crate::tensor::Tensor;
use llmrt_abi::{DType, Op};
use pairs::Pair;
use part::GRAIN;
use share::Share;
use std::ops::Range;

/// How parts come together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JoinKind {
    /// Added up.
    Sum,
    /// Each row of the whole is the parts' rows one after the other.
    Rows,
}

/// Where parts, one of each device, come together.
#[derive(Clone, PartialEq, Debug)]
pub struct Join {
    /// How.
    pub kind: JoinKind,
    /// By device.
    pub parts: Vec<Tensor>,
    /// What they make: F32, without gaps.
    pub whole: Tensor,
    /// The nodes that compute it from the parts, for devices that do not put them together themselves.
    pub nodes: Range<usize>,
}

/// A graph in parts.
#[derive(Clone, Debug)]
pub struct InParts {
    /// What it is now.
    pub graph: Graph,
    /// In the order of their nodes. Rows that are no equal number on each device are in none.
    pub joins: Vec<Join>,
}

impl Graph {
    /// The graph with each product of a weight matrix replaced by `n` products of its parts. Weights that something
    /// else reads, too, and those of few rows, stay whole. All tensors keep their numbers; new ones come after them. With
    /// `pairs`, products whose results go through functions of single numbers into another product stay in parts up to
    /// that, which adds them up: its sums are of `n` sums, so that they round differently.
    pub fn split_rows(&self, n: usize, pairs: bool) -> InParts {
        let mut out = InParts { graph: self.clone(), joins: Vec::new() };
        let nodes = std::mem::take(&mut out.graph.nodes);
        if n < 2 {
            out.graph.nodes = nodes;
            return out;
        }
        let is_wide = |pair: &Pair| pair.width >= self.grain(pair) * n as u64;
        let found = if pairs { self.pairs(is_wide) } else { Vec::new() };
        for (i, node) in nodes.iter().enumerate() {
            if let Some(pair) = found.iter().find(|pair| pair.last() == i) {
                // The last part comes first, as in `push_rows`.
                let shares: Vec<_> =
                    (0..n).rev().map(|index| Share::equal(index, n, self.grain(pair))).collect();
                out.push_pair(pair, &nodes, &shares, true);
            } else if found.iter().any(|pair| pair.contains(i)) {
                // It comes with the last node of its pair.
            } else {
                match self.matrix_of(node) {
                    Some(w) if self.is_splittable(w, n) => out.push_rows(node, w, n),
                    _ => out.graph.nodes.push(node.clone()),
                }
            }
        }
        out
    }

    /// Parts of a pair begin at multiples of this.
    fn grain(&self, pair: &Pair) -> u64 {
        match pair.down_has_columns {
            true => GRAIN.max(self.def(pair.down).dtype.block_elems() as u64),
            false => GRAIN,
        }
    }

    /// The weight matrix that a product multiplies.
    fn matrix_of(&self, node: &Node) -> Option<Tensor> {
        self.multiplied(node).filter(|_| node.op == Op::MulMat)
    }

    fn is_splittable(&self, w: Tensor, n: usize) -> bool {
        let [_, n_rows, n2, n3] = self.ne(w);
        n_rows >= GRAIN * n as u64 && (n2, n3) == (1, 1) && self.only_multiplied(w)
    }

    /// Whether products alone read a whole matrix.
    fn only_multiplied(&self, w: Tensor) -> bool {
        let reads = |node: &&Node| node.src.iter().flatten().any(|&t| self.owner(t) == w);
        let is_product = |node: &Node| {
            self.multiplied(node) == Some(w) && node.src[1..].iter().flatten().all(|&t| self.owner(t) != w)
        };
        Part::of_name(&self.def(w).name).is_none() && self.nodes.iter().filter(reads).all(is_product)
    }
}

impl InParts {
    /// The last part comes first: other devices then have their work before the first one, which feeds them, begins its
    /// own.
    fn push_rows(&mut self, node: &Node, w: Tensor, n: usize) {
        let g = &mut self.graph;
        let product = |index: usize| {
            let part = Share::equal(index, n, GRAIN).of_matrix(g, w, false);
            let src: Vec<_> = std::iter::once(Some(part)).chain(node.src[1..].iter().copied()).collect();
            g.push(Op::MulMat, &src, &node.params)
        };
        let mut products: Vec<Tensor> = (0..n).rev().map(product).collect();
        products.reverse();
        let is_even = products.iter().all(|&p| self.graph.ne(p) == self.graph.ne(products[0]));
        self.join(JoinKind::Rows, products, node.dst, is_even);
    }

    /// Nodes that put parts together, in the order of the devices.
    fn join(&mut self, kind: JoinKind, parts: Vec<Tensor>, whole: Tensor, together: bool) {
        let g = &mut self.graph;
        let first = g.nodes.len();
        let both = |g: &mut Graph, a: Tensor, b: Tensor| match kind {
            JoinKind::Sum => g.add(a, b),
            JoinKind::Rows => g.concat(a, b, 0),
        };
        if let Some(made) = parts.iter().copied().reduce(|a, b| both(g, a, b)) {
            g.put_in_place_of(made, whole);
        }
        let def = g.def(whole);
        if together && def.dtype == DType::F32 && def.is_contiguous() {
            self.joins.push(Join { kind, parts, whole, nodes: first..g.nodes.len() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::value::Value;
    use crate::reference::{self, Memory};
    use crate::tensor::Role;
    use llmrt_abi::DType;

    /// Two products of one matrix, one of another that `get_rows` reads, too, and one of few rows.
    fn graph() -> Graph {
        let mut g = Graph::new();
        let x = g.input("x", DType::F32, &[4, 3]);
        let ids = g.input("ids", DType::I32, &[3]);
        let (w, tied) = (
            g.weight("w", DType::F32, &[4, 80], Role::Matrix),
            g.weight("tied", DType::F32, &[4, 80], Role::Matrix),
        );
        let few = g.weight("few", DType::F32, &[4, 40], Role::Matrix);
        let picked = g.get_rows(tied, ids); // [4, 3]
        let (a, b) = (g.mul_mat(w, x), g.mul_mat(w, picked));
        let c = g.mul_mat(tied, x);
        let _ = g.mul_mat(few, x);
        let sum = g.add(a, b);
        let sum = g.add(sum, c);
        g.output(sum, "sum");
        g.finish().unwrap()
    }

    #[test]
    fn products_of_parts_give_what_the_whole_gives() {
        let (whole, parts) = (graph(), graph().split_rows(2, false).graph);
        let ops: Vec<_> = parts.nodes.iter().map(|node| node.op.name()).collect();
        let expected = "get_rows mul_mat mul_mat concat mul_mat mul_mat concat mul_mat mul_mat add add";
        assert_eq!(ops.join(" "), expected);
        let values = |n: u64| (0..n).map(|i| (i as f32).sin()).collect::<Vec<f32>>();
        let rows = |from: u64, to: u64| {
            let all = values(4 * 80);
            Value::f32([4, to - from, 1, 1], all[4 * from as usize..4 * to as usize].to_vec())
        };
        let mut sums = Vec::new();
        for g in [&whole, &parts] {
            let mut m = Memory::new();
            m.set(g, g.find("x").unwrap(), &Value::f32([4, 3, 1, 1], values(12))).unwrap();
            m.set(g, g.find("ids").unwrap(), &Value::i32([3, 1, 1, 1], vec![5, 79, 0])).unwrap();
            m.set(g, g.find("few").unwrap(), &Value::f32([4, 40, 1, 1], values(160))).unwrap();
            for (name, from, to) in [("w", 0, 80), ("tied", 0, 80), ("w@0/2", 0, 32), ("w@1/2", 32, 80)] {
                if let Some(t) = g.find(name) {
                    m.set(g, t, &rows(from, to)).unwrap();
                }
            }
            reference::run(g, &mut m).unwrap();
            sums.push(m.get(g, g.find("sum").unwrap()).unwrap());
        }
        assert_eq!(sums[0], sums[1]);
    }
}
