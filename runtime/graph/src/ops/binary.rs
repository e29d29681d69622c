//! y = a ∘ b, elementwise, ∘ one of + − · ÷ and the power; computed in f32, in the dtype of a. b repeats along each dim:
//! element i of a is paired with element i mod n_b of b. Semantics: ggml's binary ops (pow: C's `powf`).
//!
//! Result: dtype and shape of a. a and b are F32, F16 or BF16.

use super::operand::{Layout, NUMBERS, prepared, rounding};
use super::{Inferred, Rules, case::Case, check, value::Value};
use crate::graph::Graph;
use crate::tensor::{Shape, Tensor, TensorDef};
use llmrt_abi::{DType, Op};

impl Graph {
    /// a + b; each dim of `b` divides that of `a`.
    pub fn add(&mut self, a: Tensor, b: Tensor) -> Tensor {
        self.push(Op::Add, &[Some(a), Some(b)], &[])
    }

    /// a - b; each dim of `b` divides that of `a`.
    pub fn sub(&mut self, a: Tensor, b: Tensor) -> Tensor {
        self.push(Op::Sub, &[Some(a), Some(b)], &[])
    }

    /// a · b; each dim of `b` divides that of `a`.
    pub fn mul(&mut self, a: Tensor, b: Tensor) -> Tensor {
        self.push(Op::Mul, &[Some(a), Some(b)], &[])
    }

    /// a / b; each dim of `b` divides that of `a`.
    pub fn div(&mut self, a: Tensor, b: Tensor) -> Tensor {
        self.push(Op::Div, &[Some(a), Some(b)], &[])
    }

    /// a to the power b; each dim of `b` divides that of `a`. NaN for negative a unless b is an integer.
    pub fn pow(&mut self, a: Tensor, b: Tensor) -> Tensor {
        self.push(Op::Pow, &[Some(a), Some(b)], &[])
    }
}

pub(super) const ADD: Rules = rules(|s, _| apply(s, |a, b| a + b), || cases(Graph::add, [as_is; 2]));
pub(super) const SUB: Rules = rules(|s, _| apply(s, |a, b| a - b), || cases(Graph::sub, [as_is; 2]));
pub(super) const MUL: Rules = rules(|s, _| apply(s, |a, b| a * b), || cases(Graph::mul, [as_is; 2]));
pub(super) const DIV: Rules =
    rules(|s, _| apply(s, |a, b| a / b), || cases(Graph::div, [as_is, away_from_zero]));
pub(super) const POW: Rules = rules(
    |s, _| apply(s, f32::powf),
    || {
        let cases = cases(Graph::pow, [away_from_zero, as_is]).into_iter();
        cases.chain([whole_powers_of_negative_numbers()]).collect()
    },
);

const fn rules(reference: fn(&[Option<&Value>], &[u8]) -> Value, cases: fn() -> Vec<Case>) -> Rules {
    Rules { infer, reference, decompose: None, cases }
}

fn infer(src: &[Option<&TensorDef>], _params: &[u8]) -> Inferred {
    let (a, b) = (check::numbers(src, 0, "a")?, check::numbers(src, 1, "b")?);
    match a.ne.iter().zip(b.ne).all(|(a, b)| a.is_multiple_of(b)) {
        true => Ok((a.dtype, a.ne)),
        false => Err(format!("b {:?} does not broadcast to a {:?}", b.ne, a.ne)),
    }
}

fn apply(src: &[Option<&Value>], f: impl Fn(f32, f32) -> f32) -> Value {
    let (a, b) = (check::arg(src, 0), check::arg(src, 1));
    let n = b.ne[0] as usize;
    let mut y = Vec::with_capacity(a.floats().len());
    for i3 in 0..a.ne[3] {
        for i2 in 0..a.ne[2] {
            for i1 in 0..a.ne[1] {
                let a_row = a.row(((i3 * a.ne[2] + i2) * a.ne[1] + i1) as usize);
                let b_plane = (i3 % b.ne[3]) * b.ne[2] + i2 % b.ne[2];
                let b_row = b.row((b_plane * b.ne[1] + i1 % b.ne[1]) as usize);
                y.extend(a_row.iter().enumerate().map(|(i, &a)| f(a, b_row[i % n])));
            }
        }
    }
    Value::f32(a.ne, y)
}

fn cases(
    op: impl Fn(&mut Graph, Tensor, Tensor) -> Tensor,
    prepare: [fn(&mut Graph, Tensor) -> Tensor; 2],
) -> Vec<Case> {
    use Layout::Dense;
    let case = |a: (DType, Shape, Layout), b: (DType, Shape, Layout)| {
        Case::new(format!("{a:?} and {b:?}"), |g, _| {
            let a = prepared(g, "a", a.0, a.1, a.2, prepare[0]);
            let b = prepared(g, "b", b.0, b.1, b.2, prepare[1]);
            op(g, a, b);
        })
        .nmse(rounding(a.0))
    };
    let mut cases = vec![];
    for (a, b) in [
        ([10, 5, 4, 3], [10, 5, 4, 3]),
        ([10, 5, 4, 3], [10, 1, 1, 1]),
        ([10, 5, 4, 3], [1, 5, 4, 3]),
        ([10, 5, 4, 3], [10, 1, 4, 3]),
        ([10, 5, 4, 3], [10, 5, 1, 3]),
        ([10, 5, 4, 3], [10, 5, 4, 1]),
        ([10, 5, 4, 3], [10, 5, 1, 1]),
        ([10, 5, 4, 3], [1, 1, 4, 1]),
        ([10, 5, 4, 3], [1, 1, 1, 1]),
        // Dims that repeat but are not 1.
        ([12, 6, 4, 2], [3, 2, 2, 1]),
        ([12, 6, 4, 6], [4, 6, 4, 2]),
        ([12, 6, 4, 6], [12, 3, 4, 3]),
        ([2100, 3, 1, 1], [700, 3, 1, 1]),
        ([2100, 2, 1, 1], [3, 1, 1, 1]),
        ([1, 1, 1, 1], [1, 1, 1, 1]),
        ([4096, 3, 1, 1], [4096, 1, 1, 1]),
        ([1, 8, 5, 1], [1, 1, 5, 1]),
        ([1, 4500, 1, 1], [1, 4500, 1, 1]),
        ([0, 4, 1, 1], [0, 1, 1, 1]),
        ([6, 0, 2, 1], [3, 1, 2, 1]),
    ] {
        cases.push(case((DType::F32, a, Dense), (DType::F32, b, Dense)));
    }
    for a in NUMBERS {
        for b in NUMBERS {
            for (ne_a, ne_b) in [([33, 5, 2, 2], [33, 5, 2, 2]), ([66, 6, 3, 1], [22, 2, 1, 1])] {
                cases.push(case((a, ne_a, Dense), (b, ne_b, Dense)));
            }
            if (a, b) != (DType::F32, DType::F32) {
                cases.push(case((a, [1025, 5, 1, 1], Dense), (b, [1, 5, 1, 1], Dense)));
                cases.push(case((a, [0, 5, 1, 1], Dense), (b, [0, 5, 1, 1], Dense)));
            }
        }
    }
    for (dtype_a, dtype_b) in [
        (DType::F32, DType::F32),
        (DType::F16, DType::F32),
        (DType::F32, DType::F16),
        (DType::BF16, DType::BF16),
    ] {
        for a in Layout::ALL {
            for b in Layout::ALL.into_iter().filter(|b| (a, *b) != (Dense, Dense)) {
                for ne_b in [[12, 6, 4, 2], [4, 3, 1, 2], [1, 6, 4, 1]] {
                    cases.push(case((dtype_a, [12, 6, 4, 2], a), (dtype_b, ne_b, b)));
                }
            }
        }
    }
    cases
}

fn as_is(_: &mut Graph, x: Tensor) -> Tensor {
    x
}

/// x² + ½, in the dtype of x.
fn away_from_zero(g: &mut Graph, x: Tensor) -> Tensor {
    let x = g.sqr(x);
    g.scale_bias(x, 1.0, 0.5)
}

fn whole_powers_of_negative_numbers() -> Case {
    Case::new("whole powers of negative numbers", |g, _| {
        let a = g.input("a", DType::F32, &[64, 3]);
        let b = g.input("b", DType::F32, &[64]);
        let b = g.scale(b, 3.0);
        let b = g.round(b);
        g.pow(a, b);
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{check, floats};
    use super::*;

    #[test]
    fn b_repeats_as_a_whole() {
        let build = |g: &mut Graph| {
            let a = g.input("a", DType::F32, &[4, 2]);
            let b = g.input("b", DType::F32, &[2]);
            g.sub(a, b)
        };
        let inputs = [("a", floats(&[1., 2., 3., 4., 5., 6., 7., 8.])), ("b", floats(&[10., 20.]))];
        check(build, &inputs, &[-9., -18., -7., -16., -5., -14., -3., -12.]);
    }

    #[test]
    fn powers_are_those_of_c() {
        let build = |g: &mut Graph| {
            let a = g.input("a", DType::F32, &[5]);
            let b = g.input("b", DType::F32, &[5]);
            g.pow(a, b)
        };
        let inputs = [("a", floats(&[2., -2., 9., 0., 0.])), ("b", floats(&[10., 3., 0.5, 0., 2.]))];
        check(build, &inputs, &[1024., -8., 3., 1., 0.]);
    }

    #[test]
    fn an_empty_b_repeats_to_nothing_only() {
        let mut g = Graph::new();
        let a = g.input("a", DType::F32, &[4, 2]);
        let b = g.input("b", DType::F32, &[4, 0]);
        g.add(a, b);
        let error = g.finish().unwrap_err().to_string();
        assert_eq!(error, "add of `a`: b [4, 0, 1, 1] does not broadcast to a [4, 2, 1, 1]");
    }
}
