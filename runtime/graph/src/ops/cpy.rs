//! y[i] = x[i] over all elements in order, converted to y's dtype, in place, as ggml's cpy. The dims of x and y may
//! differ, the number of elements may not. What becomes what is as in `copy`.
//!
//! Result: y itself: a view of source 0, written in place.

use super::{Inferred, Rules, case::Case, check, copy, copy_cases, moves, value::Value};
use crate::graph::Graph;
use crate::tensor::{Role, Tensor, TensorDef};
use llmrt_abi::{DType, Op};

impl Graph {
    /// Writes the elements of `x` over those of `y`, which may be a view with gaps; x and y share no bytes. The result
    /// is `y`.
    pub fn cpy(&mut self, x: Tensor, y: Tensor) -> Tensor {
        self.push_in_place(Op::Cpy, y, &[Some(y), Some(x)], &[])
    }
}

pub(super) const RULES: Rules = Rules { infer, reference, decompose: None, cases };

fn infer(src: &[Option<&TensorDef>], _params: &[u8]) -> Inferred {
    let (y, x) = (moves::any(src, 0, "y")?, moves::any(src, 1, "x")?);
    copy::convertible(x.dtype, y.dtype)?;
    let count = |t: &TensorDef| t.ne.iter().try_fold(1u64, |n, &d| n.checked_mul(d));
    if count(x).is_none() || count(x) != count(y) {
        return Err(format!("x {:?} has not as many elements as y {:?}", x.ne, y.ne));
    }
    Ok((y.dtype, y.ne))
}

fn reference(src: &[Option<&Value>], _params: &[u8]) -> Value {
    let (y, x) = (check::arg(src, 0), check::arg(src, 1));
    Value { ne: y.ne, data: x.data.clone() }
}

fn cases() -> Vec<Case> {
    let mut cases = copy_cases::conversions(|g, x, dtype| {
        let y = g.state("y", dtype, &g.ne(x), Role::Other);
        g.cpy(x, y);
    });
    for (from, to) in [
        (DType::F32, DType::F32),
        (DType::F32, DType::F16),
        (DType::F16, DType::F16),
        (DType::BF16, DType::F32),
        (DType::I32, DType::I64),
        (DType::I8, DType::I8),
    ] {
        for (a, b) in
            [([6, 4, 5, 1], [8, 15, 1, 1]), ([120, 1, 1, 1], [1, 2, 3, 20]), ([3, 1, 40, 1], [30, 4, 1, 1])]
        {
            cases.push(Case::new(format!("{from} {a:?} over {to} {b:?}"), |g, ints| {
                let x = copy_cases::operand(g, ints, from, to, &a);
                let y = g.state("y", to, &b, Role::Other);
                g.cpy(x, y);
            }));
        }
        cases.push(Case::new(format!("{from} over columns of {to}"), |g, ints| {
            let x = copy_cases::operand(g, ints, from, to, &[3, 8, 2]);
            let y = g.state("y", to, &[12, 5, 3], Role::Other);
            let y = g.permute(y, [1, 0, 2, 3]); // [5, 12, 3]
            let y = g.slice(y, 0, 1, 4);
            let y = g.slice(y, 1, 2, 6);
            let y = g.slice(y, 2, 1, 2);
            g.cpy(x, y);
        }));
        cases.push(Case::new(format!("permuted {from} over {to} rows in other places"), |g, ints| {
            let x = copy_cases::operand(g, ints, from, to, &[6, 9, 2]);
            let x = g.permute(x, [1, 0, 2, 3]); // [9, 6, 2]
            let y = g.state("y", to, &[4, 3, 9], Role::Other);
            let y = g.permute(y, [0, 2, 1, 3]);
            g.cpy(x, y);
        }));
    }
    for dtype in [DType::Q8_0, DType::Q4_0, DType::IQ4_NL] {
        for (a, b) in [([96, 2, 1, 1], [64, 3, 1, 1]), ([20, 8, 2, 1], [32, 10, 1, 1])] {
            let build = |g: &mut Graph, _: &mut _| {
                let x = g.input("x", DType::F32, &a);
                let y = g.state("y", dtype, &b, Role::VCache);
                g.cpy(x, y);
            };
            cases.push(Case::new(format!("F32 {a:?} over {dtype} {b:?}"), build).nmse(5e-4));
        }
        cases.push(Case::new(format!("{dtype} over F32 whose rows end within blocks"), |g, _| {
            let x = g.state("x", dtype, &[64, 3], Role::VCache);
            let y = g.state("y", DType::F32, &[12, 16], Role::Other);
            g.cpy(x, y);
        }));
        cases.push(Case::new(format!("{dtype} blocks over rows of other lengths"), |g, _| {
            let x = g.state("x", dtype, &[64, 6], Role::VCache);
            let y = g.state("y", dtype, &[192, 5], Role::VCache);
            let y = g.slice(y, 1, 2, 2);
            g.cpy(x, y);
        }));
    }
    cases
}
