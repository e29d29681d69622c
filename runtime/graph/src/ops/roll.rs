//! y[(i + shift) mod n] = x[i] in each dim, as ggml's roll: what leaves a dim comes in at its other end.
//!
//! Result: dtype and shape of x.

use super::moves::{self, From};
use super::{Inferred, Rules, case::Case, check, copy_cases, value::Value};
use crate::graph::Graph;
use crate::tensor::{Role, Tensor, TensorDef};
use llmrt_abi::{DType, Op, op::RollParams};

impl Graph {
    /// `x` moved by `shift` along its dims, either way and any number of times around.
    pub fn roll(&mut self, x: Tensor, shift: [i32; 4]) -> Tensor {
        let [shift0, shift1, shift2, shift3] = shift;
        self.push(Op::Roll, &[Some(x)], &RollParams { shift0, shift1, shift2, shift3 }.to_bytes())
    }
}

pub(super) const RULES: Rules = Rules { infer, reference, decompose: None, cases };

fn infer(src: &[Option<&TensorDef>], params: &[u8]) -> Inferred {
    let p = check::params(RollParams::from_bytes(params))?;
    let x = moves::any(src, 0, "x")?;
    match x.dtype.is_quantised() && p.shift0 != 0 {
        true => Err(format!("x is {}, whose elements do not move within rows", x.dtype)),
        false => Ok((x.dtype, x.ne)),
    }
}

fn reference(src: &[Option<&Value>], params: &[u8]) -> Value {
    let p = RollParams::from_bytes(params).unwrap_or_default();
    let x = check::arg(src, 0);
    let back = |i: u64, shift: i32, n: u64| (i as i64 - shift as i64).rem_euclid(n as i64) as u64;
    moves::gather(x.ne, &[x], |[i0, i1, i2, i3]| {
        From::Source(
            0,
            [
                back(i0, p.shift0, x.ne[0]),
                back(i1, p.shift1, x.ne[1]),
                back(i2, p.shift2, x.ne[2]),
                back(i3, p.shift3, x.ne[3]),
            ],
        )
    })
}

fn cases() -> Vec<Case> {
    let mut cases = vec![];
    for shift in [
        [0, 0, 0, 0],
        [3, 0, 0, 0],
        [-3, 0, 0, 0],
        [0, 2, 0, 0],
        [0, -1, 1, 0],
        [1, -2, 3, -1],
        [10, 5, 4, 3],
        [-23, 17, -9, 100],
        [i32::MIN, i32::MAX, 1, 1],
    ] {
        for dtype in copy_cases::PLAIN {
            cases.push(Case::new(format!("{dtype} by {shift:?}"), |g, ints| {
                let x = copy_cases::operand(g, ints, dtype, dtype, &[10, 5, 4, 3]);
                g.roll(x, shift);
            }));
        }
        cases.push(Case::new(format!("permuted by {shift:?}"), |g, _| {
            let x = g.input("x", DType::F32, &[4, 10, 3, 5]);
            let x = g.permute(x, [1, 3, 0, 2]);
            g.roll(x, shift);
        }));
        cases.push(Case::new(format!("rows of 1500 by {shift:?}"), |g, _| {
            let x = g.input("x", DType::F32, &[1510, 2]);
            let x = g.slice(x, 0, 3, 1500);
            g.roll(x, shift);
        }));
    }
    for dtype in [DType::Q8_0, DType::Q5_K] {
        cases.push(Case::new(format!("rows of {dtype}"), |g, _| {
            let x = g.state("x", dtype, &[256, 4, 3], Role::KCache);
            g.roll(x, [0, 1, -1, 0]);
        }));
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::tests::{check, floats};

    #[test]
    fn a_positive_shift_moves_elements_to_higher_places() {
        for (shift, expected) in [(1, [3., 1., 2.]), (-1, [2., 3., 1.]), (4, [3., 1., 2.])] {
            let build = |g: &mut Graph| {
                let x = g.input("x", DType::F32, &[3]);
                g.roll(x, [shift, 0, 0, 0])
            };
            check(build, &[("x", floats(&[1., 2., 3.]))], &expected);
        }
    }
}
