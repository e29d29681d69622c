//! x with a·x = b, a lower triangular: x_i = (b_i - Σ_{t<i} a_it x_t) / a_ii, row after row. What stands above a's
//! diagonal is not read. A zero on the diagonal gives infinities or NaN (ggml's variant: left, lower, not unit).
//!
//! Result: F32 in the shape of b; a and b are F32.

use super::{Inferred, Rules, case::Case, check, value::Value};
use crate::graph::Graph;
use crate::tensor::{Tensor, TensorDef};
use llmrt_abi::{DType, Op};

impl Graph {
    /// x [k, n] with a·x = b for `a` [n, n] lower triangular and `b` [k, n]; dims 2 and 3 are batches of both.
    pub fn solve_tri(&mut self, a: Tensor, b: Tensor) -> Tensor {
        self.push(Op::SolveTri, &[Some(a), Some(b)], &[])
    }
}

pub(super) const RULES: Rules = Rules { infer, reference, decompose: None, cases };

fn infer(src: &[Option<&TensorDef>], _params: &[u8]) -> Inferred {
    let (a, b) = (check::floats(src, 0, "a")?.ne, check::floats(src, 1, "b")?.ne);
    let expected = [b[1], b[1], b[2], b[3]];
    match a == expected {
        true => Ok((DType::F32, b)),
        false => Err(format!("a is {a:?}, expected {expected:?} for b {b:?}")),
    }
}

fn reference(src: &[Option<&Value>], _params: &[u8]) -> Value {
    let (a, b) = (check::arg(src, 0), check::arg(src, 1));
    let (k, n) = (b.ne[0] as usize, b.ne[1] as usize);
    let mut x = b.floats().to_vec();
    for (x, a) in x.chunks_exact_mut(k * n).zip(a.floats().chunks_exact(n * n)) {
        for i in 0..n {
            for j in 0..k {
                let sum: f64 = (0..i).map(|t| a[i * n + t] as f64 * x[t * k + j] as f64).sum();
                x[i * k + j] = ((x[i * k + j] as f64 - sum) / a[i * n + i] as f64) as f32;
            }
        }
    }
    Value::f32(b.ne, x)
}

fn cases() -> Vec<Case> {
    let mut cases = vec![];
    for (n, k, n2, n3) in [
        (1, 1, 1, 1),
        (1, 7, 2, 1),
        (2, 1, 1, 1),
        (3, 1, 1, 2),
        (10, 10, 4, 3),
        (11, 5, 1, 1),
        (16, 16, 2, 1),
        (17, 9, 2, 4),
        (30, 8, 7, 1),
        (33, 31, 1, 1),
        (42, 10, 5, 2),
        (64, 1, 1, 1),
        (64, 64, 2, 2),
        (79, 417, 1, 1),
        (80, 81, 2, 1),
        (100, 41, 1, 2),
        (128, 32, 2, 1),
        (130, 3, 1, 1),
    ] {
        cases.push(Case::new(format!("{n} equations, {k} right sides, {n2} × {n3} times"), |g, _| {
            let a = g.input("a", DType::F32, &[n, n, n2, n3]);
            let b = g.input("b", DType::F32, &[k, n, n2, n3]);
            let a = well_conditioned(g, a);
            g.solve_tri(a, b);
        }));
    }
    cases.push(Case::new("parts of larger matrices", |g, _| {
        let a = g.input("a", DType::F32, &[40, 50, 3]);
        let a = well_conditioned(g, a);
        let a = g.slice(a, 0, 8, 24);
        let a = g.slice(a, 1, 3, 24);
        let b = g.input("b", DType::F32, &[30, 60, 3]);
        let b = g.slice(b, 0, 5, 20);
        let b = g.slice(b, 1, 9, 24);
        g.solve_tri(a, b);
    }));
    cases.push(Case::new("b with dims 1 and 2 exchanged", |g, _| {
        let a = g.input("a", DType::F32, &[12, 12, 5]);
        let a = well_conditioned(g, a);
        let b = g.input("b", DType::F32, &[20, 5, 12]);
        let b = g.permute(b, [0, 2, 1, 3]);
        g.solve_tri(a, b);
    }));
    cases
}

/// Elements 0.9 to 1.1: no diagonal is near 0, and differences of rows are small, so that nothing grows.
fn well_conditioned(g: &mut Graph, a: Tensor) -> Tensor {
    g.scale_bias(a, 0.1, 1.0)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{check, floats};
    use super::*;

    #[test]
    fn what_stands_above_the_diagonal_is_not_read() {
        let build = |g: &mut Graph| {
            let a = g.input("a", DType::F32, &[2, 2]);
            let b = g.input("b", DType::F32, &[2, 2]);
            g.solve_tri(a, b)
        };
        let (a, b) = (floats(&[2., f32::NAN, 3., 4.]), floats(&[2., 6., 11., 1.]));
        check(build, &[("a", a), ("b", b)], &[1., 3., 2., -2.]);
    }
}
