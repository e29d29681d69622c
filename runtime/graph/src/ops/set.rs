//! y = a with a block of it replaced by b; the block has the shape of b and starts at the element that the params name.
//! Semantics: ggml's set; ggml's place is in bytes, with strides of its own, here it is a block along the dims of a.
//!
//! Result: dtype (F32, F16, BF16 or I32, that of b too) and shape of a.

use super::operand::{Layout, operand};
use super::{Inferred, Rules, case::Case, check, value::Data, value::Value};
use crate::graph::Graph;
use crate::tensor::{Shape, Tensor, TensorDef};
use llmrt_abi::{DType, Op, op::BlockParams};

impl Graph {
    /// `a` with the block that starts at `start` replaced by `b`.
    pub fn set(&mut self, a: Tensor, b: Tensor, start: [u32; 4]) -> Tensor {
        self.push(Op::Set, &[Some(a), Some(b)], &block_at(start).to_bytes())
    }
}

pub(super) const RULES: Rules = Rules { infer, reference, decompose: None, cases };

fn infer(src: &[Option<&TensorDef>], params: &[u8]) -> Inferred {
    let p = check::params(BlockParams::from_bytes(params))?;
    let (a, b) = (check::given(src, 0, "a")?, check::given(src, 1, "b")?);
    if !matches!(a.dtype, DType::F32 | DType::F16 | DType::BF16 | DType::I32) || a.dtype != b.dtype {
        return Err(format!("a is {} and b is {}, expected one of F32, F16, BF16, I32", a.dtype, b.dtype));
    }
    fits(&p, a, b)?;
    Ok((a.dtype, a.ne))
}

fn reference(src: &[Option<&Value>], params: &[u8]) -> Value {
    let p = BlockParams::from_bytes(params).unwrap_or_default();
    let (a, b) = (check::arg(src, 0), check::arg(src, 1));
    let mut y = a.clone();
    match (&mut y.data, &b.data) {
        (Data::F32(y), Data::F32(data)) => places(&p, a.ne, b.ne, |i, j| y[i] = data[j]),
        (Data::I32(y), Data::I32(data)) => places(&p, a.ne, b.ne, |i, j| y[i] = data[j]),
        _ => {}
    }
    y
}

/// The params of a block that starts here.
pub(super) fn block_at([start0, start1, start2, start3]: [u32; 4]) -> BlockParams {
    BlockParams { start0, start1, start2, start3 }
}

/// Whether the block is inside a.
pub(super) fn fits(p: &BlockParams, a: &TensorDef, b: &TensorDef) -> Result<(), String> {
    let start = [p.start0, p.start1, p.start2, p.start3];
    let fits = |d: usize| b.ne[d].checked_add(start[d] as u64).is_some_and(|end| end <= a.ne[d]);
    match (0..4).all(fits) {
        true => Ok(()),
        false => Err(format!("b {:?} at {start:?} is not within a {:?}", b.ne, a.ne)),
    }
}

/// Calls `visit` with the place in a and the place in b of each element of the block.
pub(super) fn places(p: &BlockParams, a: Shape, b: Shape, mut visit: impl FnMut(usize, usize)) {
    let mut j = 0;
    for i3 in p.start3 as u64..p.start3 as u64 + b[3] {
        for i2 in p.start2 as u64..p.start2 as u64 + b[2] {
            for i1 in p.start1 as u64..p.start1 as u64 + b[1] {
                for i0 in p.start0 as u64..p.start0 as u64 + b[0] {
                    visit((((i3 * a[2] + i2) * a[1] + i1) * a[0] + i0) as usize, j);
                    j += 1;
                }
            }
        }
    }
}

/// Shape of a, shape of b, where b starts.
pub(super) const BLOCKS: [(Shape, Shape, [u32; 4]); 12] = [
    ([10, 5, 4, 3], [10, 5, 4, 3], [0; 4]),
    ([10, 5, 4, 3], [4, 3, 2, 1], [0; 4]),
    ([10, 5, 4, 3], [4, 3, 2, 1], [6, 2, 2, 2]),
    ([10, 5, 4, 3], [10, 1, 1, 1], [0, 3, 2, 1]),
    ([10, 5, 4, 3], [1, 5, 4, 3], [9, 0, 0, 0]),
    ([10, 5, 4, 3], [1, 1, 1, 1], [7, 4, 1, 2]),
    ([1, 1, 1, 1], [1, 1, 1, 1], [0; 4]),
    ([2100, 3, 1, 1], [1025, 2, 1, 1], [1000, 1, 0, 0]),
    ([33, 150, 1, 1], [7, 149, 1, 1], [25, 1, 0, 0]),
    ([10, 5, 1, 1], [0, 5, 1, 1], [10, 0, 0, 0]),
    ([10, 5, 1, 1], [3, 0, 1, 1], [1, 1, 0, 0]),
    ([0, 5, 1, 1], [0, 2, 1, 1], [0, 3, 0, 0]),
];

fn cases() -> Vec<Case> {
    let mut cases = vec![];
    for dtype in [DType::F32, DType::F16, DType::BF16, DType::I32] {
        for (ne, block, start) in BLOCKS {
            cases.push(case(dtype, (ne, Layout::Dense), (block, Layout::Dense), start));
        }
        for of_a in Layout::ALL {
            for of_b in Layout::STRIDED {
                cases.push(case(dtype, ([12, 6, 4, 2], of_a), ([5, 3, 2, 2], of_b), [4, 1, 2, 0]));
            }
        }
    }
    cases
}

fn case(dtype: DType, a: (Shape, Layout), b: (Shape, Layout), start: [u32; 4]) -> Case {
    Case::new(format!("{dtype}, {b:?} at {start:?} of {a:?}"), |g, ints| {
        let a = operand(g, "a", dtype, a.0, a.1);
        let b = operand(g, "b", dtype, b.0, b.1);
        if dtype == DType::I32 {
            for t in [a, b] {
                let owner = g.owner(t);
                let n = g.def(owner).n_elems() as i32;
                ints.push((owner, (0..n).map(|i| i * 1000 + owner.0 as i32).collect()));
            }
        }
        g.set(a, b, start);
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{check, floats};
    use super::*;

    #[test]
    fn a_block_is_replaced_or_added_to() {
        let a = floats(&[1., 2., 3., 4., 5., 6.]);
        let inputs = [("a", a), ("b", floats(&[10., 20.]))];
        let operands = |g: &mut Graph| (g.input("a", DType::F32, &[3, 2]), g.input("b", DType::F32, &[2]));
        let set = |g: &mut Graph| {
            let (a, b) = operands(g);
            g.set(a, b, [1, 1, 0, 0])
        };
        check(set, &inputs, &[1., 2., 3., 4., 10., 20.]);
        let acc = |g: &mut Graph| {
            let (a, b) = operands(g);
            g.acc(a, b, [1, 1, 0, 0])
        };
        check(acc, &inputs, &[1., 2., 3., 4., 15., 26.]);
    }

    #[test]
    fn a_block_past_the_end_is_refused() {
        let mut g = Graph::new();
        let (a, b) = (g.input("a", DType::F32, &[3, 2]), g.input("b", DType::F32, &[2]));
        g.set(a, b, [2, 0, 0, 0]);
        let error = g.finish().unwrap_err().to_string();
        assert_eq!(error, "set of `a`: b [2, 1, 1, 1] at [2, 0, 0, 0] is not within a [3, 2, 1, 1]");
    }
}
