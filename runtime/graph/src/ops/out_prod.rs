//! y[i, j] = Σₖ a[i, k] · b[j, k]; matrix i of b uses matrix i / (n_b / n_a) of a in dims 2 and 3.
//! Semantics are those of ggml's `out_prod`.
//!
//! Result: F32 [m, n, ne2, ne3] of a [m, k, …] and b [n, k, ne2, ne3].

use super::{Inferred, Rules, case::Case, check, value::Value};
use crate::graph::{Graph, Node};
use crate::tensor::{Shape, Tensor, TensorDef};
use llmrt_abi::{DType, Op};

impl Graph {
    /// `a` [m, k] of any dtype and `b` [n, k] of F32, F16 or BF16 give F32 [m, n], the sum of the outer products of
    /// their rows; dims 2 and 3 of `a` divide those of `b`. Strides are free, but rows of a quantised `a` have no gaps.
    pub fn out_prod(&mut self, a: Tensor, b: Tensor) -> Tensor {
        self.push(Op::OutProd, &[Some(a), Some(b)], &[])
    }
}

pub(super) const RULES: Rules = Rules { infer, reference, decompose: Some(decompose), cases };

fn infer(src: &[Option<&TensorDef>], _params: &[u8]) -> Inferred {
    let a = check::matrix(src, 0, "a")?;
    let b = check::numbers(src, 1, "b")?;
    if a.ne[1] != b.ne[1] {
        return Err(format!("a {:?} has {} rows, b {:?} {}", a.ne, a.ne[1], b.ne, b.ne[1]));
    }
    if !b.ne[2].is_multiple_of(a.ne[2]) || !b.ne[3].is_multiple_of(a.ne[3]) {
        return Err(format!("a {:?} does not broadcast to b {:?}", a.ne, b.ne));
    }
    Ok((DType::F32, [a.ne[0], b.ne[0], b.ne[2], b.ne[3]]))
}

fn reference(src: &[Option<&Value>], _params: &[u8]) -> Value {
    let (a, b) = (check::arg(src, 0), check::arg(src, 1));
    let (k, n) = (b.ne[1] as usize, b.ne[0] as usize);
    let (r2, r3) = (b.ne[2] / a.ne[2], b.ne[3] / a.ne[3]);
    let mut y = vec![];
    for i3 in 0..b.ne[3] {
        for i2 in 0..b.ne[2] {
            let first_a = (i3 / r3 * a.ne[2] + i2 / r2) as usize * k;
            let first_b = (i3 * b.ne[2] + i2) as usize * k;
            for j in 0..n {
                y.extend((0..a.ne[0] as usize).map(|i| {
                    let product = |k| a.row(first_a + k)[i] as f64 * b.row(first_b + k)[j] as f64;
                    (0..k).map(product).sum::<f64>() as f32
                }));
            }
        }
    }
    Value::f32([a.ne[0], b.ne[0], b.ne[2], b.ne[3]], y)
}

/// The product of both turned over.
fn decompose(g: &mut Graph, node: &Node) -> Option<Tensor> {
    let [a, b] = *node.src.first_chunk()?;
    let [a, b] = [a?, b?].map(|t| {
        let t = g.cast(t, DType::F32);
        let t = g.permute(t, [1, 0, 2, 3]);
        g.cont(t)
    });
    Some(g.mul_mat(a, b))
}

fn cases() -> Vec<Case> {
    use DType::*;
    let mut cases = vec![];
    for (m, n, k) in
        [(1, 1, 1), (3, 5, 7), (256, 1, 16), (17, 33, 1), (64, 16, 40), (1030, 3, 5), (2, 1100, 3)]
    {
        for a in [F32, F16, BF16] {
            cases.push(case(a, [m, k, 1, 1], F32, [n, k, 1, 1]));
        }
        cases.push(case(F32, [m, k, 1, 1], F16, [n, k, 1, 1]));
    }
    for a in [Q4_0, Q5_1, Q8_0, Q4_K, Q6_K, IQ4_NL, MXFP4] {
        for (n, k) in [(1, 1), (1, 16), (16, 16), (5, 3)] {
            cases.push(case(a, [256, k, 1, 1], F32, [n, k, 1, 1]));
        }
    }
    for a in [F32, F16, Q4_0] {
        for (batch_a, batch_b) in [([1, 1], [3, 2]), ([3, 2], [3, 2]), ([2, 1], [6, 2]), ([1, 2], [1, 4])] {
            cases.push(case(a, [32, 5, batch_a[0], batch_a[1]], F32, [9, 5, batch_b[0], batch_b[1]]));
        }
    }
    for dtype in [F32, F16, BF16] {
        for axes in [[1, 0, 2, 3], [2, 0, 1, 3], [0, 2, 1, 3]] {
            cases.push(Case::new(format!("{dtype}, both permuted by {axes:?}"), |g, _| {
                let a = g.input("a", dtype, &[5, 5, 5]);
                let b = g.input("b", dtype, &[5, 5, 5]);
                let (a, b) = (g.permute(a, axes), g.permute(b, axes));
                g.out_prod(a, b);
            }));
        }
    }
    cases.push(Case::new("no columns", |g, _| {
        let a = g.input("a", F32, &[3, 4]);
        let b = g.input("b", F32, &[0, 4]);
        g.out_prod(a, b);
    }));
    cases
}

fn case(a_type: DType, a: Shape, b_type: DType, b: Shape) -> Case {
    Case::new(format!("{a_type} {a:?} and {b_type} {b:?}"), |g, _| {
        let a = g.input("a", a_type, &a);
        let b = g.input("b", b_type, &b);
        g.out_prod(a, b);
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::tests::{check, floats};

    /// Numbers that ggml computed.
    #[test]
    fn rows_give_outer_products_that_add_up() {
        let build = |g: &mut Graph| {
            let a = g.input("a", DType::F32, &[2, 2]);
            let b = g.input("b", DType::F32, &[3, 2, 2]);
            g.out_prod(a, b)
        };
        let numbers = |n: usize| floats(&(1..=n).map(|i| i as f32 / 4.0).collect::<Vec<_>>());
        let expected =
            [0.8125, 1.125, 1.0625, 1.5, 1.3125, 1.875, 2.3125, 3.375, 2.5625, 3.75, 2.8125, 4.125];
        check(build, &[("a", numbers(4)), ("b", numbers(12))], &expected);
    }
}
