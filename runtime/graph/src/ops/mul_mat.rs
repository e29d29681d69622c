//! y[i, j] = Σₖ w[k, i] · x[k, j]; matrix b of x uses matrix b / (n_x / n_w) of w in dims 2 and 3.

use super::{
    Inferred, Rules,
    case::{self, Case},
    check,
    value::Value,
};
use crate::graph::Graph;
use crate::tensor::{Role, Tensor, TensorDef};
use llmrt_abi::{DType, Op};

impl Graph {
    /// `w` [k, m] of any dtype and `x` [k, n] give [m, n]; dims 2 and 3 of `w` divide those of `x`.
    pub fn mul_mat(&mut self, w: Tensor, x: Tensor) -> Tensor {
        self.push(Op::MulMat, &[Some(w), Some(x)], &[])
    }
}

pub(super) const RULES: Rules = Rules { infer, reference, decompose: None, cases };

/// What quantising the rows of x as well costs at most.
pub(super) const QUANT_NMSE: f64 = 5e-4;

/// What rounding x and y to F16 costs at most, as matrix units do that have nothing finer.
const HALF_NMSE: f64 = 1e-6;

/// The largest error of a product with weights of this dtype.
pub(super) fn limit(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => HALF_NMSE,
        dtype if dtype.is_quantised() => QUANT_NMSE,
        _ => 1e-7,
    }
}

fn infer(src: &[Option<&TensorDef>], _params: &[u8]) -> Inferred {
    let w = check::decodable(src, 0, "w")?;
    let x = check::floats(src, 1, "x")?;
    if w.ne[0] != x.ne[0] {
        return Err(format!("w {:?} has rows of {}, x {:?} of {}", w.ne, w.ne[0], x.ne, x.ne[0]));
    }
    if x.ne[2] % w.ne[2] != 0 || x.ne[3] % w.ne[3] != 0 {
        return Err(format!("w {:?} does not broadcast to x {:?}", w.ne, x.ne));
    }
    Ok((DType::F32, [w.ne[1], x.ne[1], x.ne[2], x.ne[3]]))
}

fn reference(src: &[Option<&Value>], _params: &[u8]) -> Value {
    let (w, x) = (check::arg(src, 0), check::arg(src, 1));
    let (m, n) = (w.ne[1] as usize, x.ne[1] as usize);
    let (r2, r3) = (x.ne[2] / w.ne[2], x.ne[3] / w.ne[3]);
    let mut y = Vec::with_capacity(m * x.n_rows());
    for i3 in 0..x.ne[3] {
        for i2 in 0..x.ne[2] {
            let w_matrix = (i3 / r3 * w.ne[2] + i2 / r2) as usize;
            let x_matrix = (i3 * x.ne[2] + i2) as usize;
            for j in 0..n {
                let x_row = x.row(x_matrix * n + j);
                y.extend((0..m).map(|i| dot(w.row(w_matrix * m + i), x_row)));
            }
        }
    }
    Value::f32([w.ne[1], x.ne[1], x.ne[2], x.ne[3]], y)
}

/// Σ a·b, summed in f64.
pub(super) fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| *a as f64 * *b as f64).sum::<f64>() as f32
}

fn cases() -> Vec<Case> {
    let mut cases = vec![];
    for dtype in case::weight_dtypes() {
        let nmse = limit(dtype);
        for (m, n, k) in [(16, 1, 256), (33, 7, 512), (5, 32, 768)] {
            cases.push(
                Case::new(format!("{dtype} weights [{k}, {m}] times {n} rows"), |g, _| {
                    let w = g.weight("w", dtype, &[k, m], Role::Matrix);
                    let x = g.input("x", DType::F32, &[k, n]);
                    g.mul_mat(w, x);
                })
                .nmse(nmse),
            );
        }
    }
    for (m, n, k) in [(1, 1, 1), (3, 5, 7), (1, 9, 33), (129, 65, 17), (64, 64, 64)] {
        cases.push(Case::new(format!("F32 weights of odd shape [{k}, {m}] times {n} rows"), |g, _| {
            let w = g.weight("w", DType::F32, &[k, m], Role::Matrix);
            let x = g.input("x", DType::F32, &[k, n]);
            g.mul_mat(w, x);
        }));
    }
    for (w_batch, x_batch) in [([1, 1], [3, 2]), ([3, 2], [3, 2]), ([2, 1], [6, 2]), ([1, 2], [1, 4])] {
        for dtype in [DType::F32, DType::F16] {
            let case = Case::new(format!("batches {w_batch:?} of {dtype} for {x_batch:?}"), |g, _| {
                let w = g.input("w", dtype, &[16, 6, w_batch[0], w_batch[1]]);
                let x = g.input("x", DType::F32, &[16, 3, x_batch[0], x_batch[1]]);
                g.mul_mat(w, x);
            });
            cases.push(case.nmse(limit(dtype)));
        }
    }
    cases.push(Case::new("permuted operands", |g, _| {
        let k = g.input("k", DType::F16, &[8, 2, 10]);
        let q = g.input("q", DType::F32, &[8, 4, 5]);
        let k = g.permute(k, [0, 2, 1, 3]);
        let q = g.permute(q, [0, 2, 1, 3]);
        g.mul_mat(k, q);
    }));
    cases.push(
        Case::new("a part of the rows of quantised weights and of x", |g, _| {
            let w = g.weight("w", DType::Q8_0, &[96, 12], Role::Matrix);
            let w = g.slice(w, 0, 32, 64);
            let x = g.input("x", DType::F32, &[80, 3]);
            let x = g.slice(x, 0, 16, 64);
            g.mul_mat(w, x);
        })
        .nmse(QUANT_NMSE),
    );
    cases
}
