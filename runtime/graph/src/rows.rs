//! Products taken apart by rows of their weights, so that several devices hold and multiply a part each:
//! `y = w x` becomes `y = concat(w₀ x, w₁ x, …)` with the rows of w dealt out in order.

use crate::graph::{Graph, Node};
use crate::tensor::{Kind, Role, Tensor, TensorDef};
use llmrt_abi::Op;
use std::ops::Range;

/// Parts begin at multiples of this, so that none is a sliver.
const GRAIN: u64 = 32;

/// A part of a weight's rows, as in the name of the part: `NAME@2/4` is the third of four.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part<'a> {
    /// The weight in the file.
    pub whole: &'a str,
    /// Which part.
    pub index: usize,
    /// Of how many.
    pub n: usize,
}

impl<'a> Part<'a> {
    /// Reads a name; `None` if it is that of a whole tensor.
    pub fn of_name(name: &'a str) -> Option<Part<'a>> {
        let (whole, part) = name.rsplit_once('@')?;
        let (index, n) = part.split_once('/')?;
        let (index, n) = (index.parse().ok()?, n.parse().ok()?);
        (index < n).then_some(Part { whole, index, n })
    }

    /// Its name.
    pub fn name(&self) -> String {
        format!("{}@{}/{}", self.whole, self.index, self.n)
    }

    /// Its rows of `n_rows`.
    pub fn rows(&self, n_rows: u64) -> Range<u64> {
        let start = |i: usize| match i == self.n {
            true => n_rows,
            false => n_rows * i as u64 / self.n as u64 / GRAIN * GRAIN,
        };
        start(self.index)..start(self.index + 1)
    }
}

impl Graph {
    /// The graph with each product of a weight matrix replaced by `n` products of its parts. Weights that something
    /// else reads, too, and those of few rows, stay whole. All tensors keep their numbers; new ones come after them.
    pub fn split_rows(&self, n: usize) -> Graph {
        let mut out = self.clone();
        for node in std::mem::take(&mut out.nodes) {
            match self.matrix_of(&node).filter(|_| n > 1) {
                Some(w) if self.is_splittable(w, n) => out.push_parts(&node, w, n),
                _ => out.nodes.push(node),
            }
        }
        out
    }

    /// The weight matrix that a product multiplies.
    fn matrix_of(&self, node: &Node) -> Option<Tensor> {
        let w = node.src.first().copied().flatten().filter(|_| node.op == Op::MulMat)?;
        let def = self.def(w);
        (def.kind == Kind::Weight && def.role == Role::Matrix && def.view.is_none()).then_some(w)
    }

    fn is_splittable(&self, w: Tensor, n: usize) -> bool {
        let [_, n_rows, n2, n3] = self.ne(w);
        let reads = |node: &&Node| node.src.iter().flatten().any(|&t| self.owner(t) == w);
        let is_product = |node: &Node| {
            self.matrix_of(node) == Some(w) && node.src[1..].iter().flatten().all(|&t| self.owner(t) != w)
        };
        n_rows >= GRAIN * n as u64
            && (n2, n3) == (1, 1)
            && Part::of_name(&self.def(w).name).is_none()
            && self.nodes.iter().filter(reads).all(is_product)
    }

    /// The last part comes first: other devices then have their work before the first one, which feeds them, begins its
    /// own.
    fn push_parts(&mut self, node: &Node, w: Tensor, n: usize) {
        let product = |index: usize| {
            let part = self.part(w, index, n);
            let src: Vec<_> = std::iter::once(Some(part)).chain(node.src[1..].iter().copied()).collect();
            self.push(Op::MulMat, &src, &node.params)
        };
        let products: Vec<Tensor> = (0..n).rev().map(product).collect();
        if let Some(whole) = products.into_iter().rev().reduce(|a, b| self.concat(a, b, 0)) {
            self.put_in_place_of(whole, node.dst);
        }
    }

    /// A part of a weight's rows: one tensor, however many products multiply it.
    fn part(&mut self, w: Tensor, index: usize, n: usize) -> Tensor {
        let TensorDef { name, dtype, ne, role, .. } = self.def(w).clone();
        let part = Part { whole: &name, index, n };
        let rows = part.rows(ne[1]);
        self.find(&part.name())
            .unwrap_or_else(|| self.weight(&part.name(), dtype, &[ne[0], rows.end - rows.start], role))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::value::Value;
    use crate::reference::{self, Memory};
    use llmrt_abi::DType;

    #[test]
    fn rows_are_dealt_out_in_order_and_none_is_left() {
        let check = |n_rows, n, expected: &str| {
            let part = |index| Part { whole: "w", index, n }.rows(n_rows);
            let rows: Vec<_> = (0..n).map(|i| format!("{:?}", part(i))).collect();
            assert_eq!(rows.join(" "), expected);
        };
        check(100, 1, "0..100");
        check(128, 2, "0..64 64..128");
        check(100, 3, "0..32 32..64 64..100");
        check(97, 3, "0..32 32..64 64..97");
    }

    #[test]
    fn names_of_parts_are_read_back() {
        let part = Part { whole: "blk.0.ffn_up.weight", index: 1, n: 2 };
        assert_eq!(Part::of_name(&part.name()), Some(part));
        for name in ["w", "w@2/2", "w@x/2", "w@1"] {
            assert_eq!(Part::of_name(name), None, "{name}");
        }
    }

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
        let (whole, parts) = (graph(), graph().split_rows(2));
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
