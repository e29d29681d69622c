//! y = a with b added to a block of it; the block has the shape of b and starts at the element that the params name.
//! Computed in f32, in the dtype of a. Semantics: ggml's acc; the place is given as in `set`.
//!
//! Result: dtype and shape of a. a and b are F32, F16 or BF16.

use super::operand::{Layout, NUMBERS, operand, rounding};
use super::set::{BLOCKS, block_at, fits, places};
use super::{Inferred, Rules, case::Case, check, value::Data, value::Value};
use crate::graph::Graph;
use crate::tensor::{Shape, Tensor, TensorDef};
use llmrt_abi::{DType, Op, op::BlockParams};

impl Graph {
    /// `a` with `b` added to the block that starts at `start`.
    pub fn acc(&mut self, a: Tensor, b: Tensor, start: [u32; 4]) -> Tensor {
        self.push(Op::Acc, &[Some(a), Some(b)], &block_at(start).to_bytes())
    }
}

pub(super) const RULES: Rules = Rules { infer, reference, decompose: None, cases };

fn infer(src: &[Option<&TensorDef>], params: &[u8]) -> Inferred {
    let p = check::params(BlockParams::from_bytes(params))?;
    let (a, b) = (check::numbers(src, 0, "a")?, check::numbers(src, 1, "b")?);
    fits(&p, a, b)?;
    Ok((a.dtype, a.ne))
}

fn reference(src: &[Option<&Value>], params: &[u8]) -> Value {
    let p = BlockParams::from_bytes(params).unwrap_or_default();
    let (a, b) = (check::arg(src, 0), check::arg(src, 1));
    let mut y = a.clone();
    if let Data::F32(y) = &mut y.data {
        places(&p, a.ne, b.ne, |i, j| y[i] += b.floats()[j]);
    }
    y
}

fn cases() -> Vec<Case> {
    let mut cases = vec![];
    for dtype in NUMBERS {
        for of_b in NUMBERS {
            for (ne, block, start) in BLOCKS {
                cases.push(case((dtype, ne, Layout::Dense), (of_b, block, Layout::Dense), start));
            }
        }
        for of_a in Layout::ALL {
            for of_b in Layout::STRIDED {
                let (a, b) = ((dtype, [12, 6, 4, 2], of_a), (dtype, [5, 3, 2, 2], of_b));
                cases.push(case(a, b, [4, 1, 2, 0]));
            }
        }
    }
    cases
}

fn case(a: (DType, Shape, Layout), b: (DType, Shape, Layout), start: [u32; 4]) -> Case {
    Case::new(format!("{b:?} at {start:?} of {a:?}"), |g, _| {
        let a = operand(g, "a", a.0, a.1, a.2);
        let b = operand(g, "b", b.0, b.1, b.2);
        g.acc(a, b, start);
    })
    .nmse(rounding(a.0))
}
