//! y[i, j] = Σₖ w[k, i] · x[k, j]; matrix b of x uses matrix b / (n_x / n_w) of w in dims 2 and 3.
//!
//! Result: F32 [m, n, ne2, ne3] of w [k, m, …] (any dtype that can be decoded) and x [k, n, ne2, ne3] (F32, F16 or
//! BF16).

use super::{Inferred, Rules, check, value::Value};
use crate::graph::Graph;
use crate::tensor::{Tensor, TensorDef};
use llmrt_abi::{DType, Op};

#[path = "mul_mat_cases.rs"]
mod mul_mat_cases;

impl Graph {
    /// `w` [k, m] of any dtype and `x` [k, n] of F32, F16 or BF16 give F32 [m, n]; dims 2 and 3 of `w` divide those of
    /// `x`. Strides are free, but rows of quantised weights have no gaps.
    pub fn mul_mat(&mut self, w: Tensor, x: Tensor) -> Tensor {
        self.push(Op::MulMat, &[Some(w), Some(x)], &[])
    }
}

pub(super) const RULES: Rules = Rules { infer, reference, decompose: None, cases: mul_mat_cases::cases };

/// What quantising the rows of x as well costs at most.
pub(super) const QUANT_NMSE: f64 = 5e-4;

/// What rounding x and y to F16 costs at most, as matrix units do that have nothing finer.
const HALF_NMSE: f64 = 1e-6;

/// What rounding x to BF16 costs at most, as units for products of BF16 do: half of 2⁻⁷ of a number, squared, where a sum has
/// one of them.
const BF16_NMSE: f64 = 1.6e-5;

/// The largest error of a product with weights of this dtype.
pub(super) fn limit(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => HALF_NMSE,
        DType::BF16 => BF16_NMSE,
        dtype if dtype.is_quantised() => QUANT_NMSE,
        _ => 1e-7,
    }
}

fn infer(src: &[Option<&TensorDef>], _params: &[u8]) -> Inferred {
    let w = check::matrix(src, 0, "w")?;
    let x = check::numbers(src, 1, "x")?;
    if w.ne[0] != x.ne[0] {
        return Err(format!("w {:?} has rows of {}, x {:?} of {}", w.ne, w.ne[0], x.ne, x.ne[0]));
    }
    if !x.ne[2].is_multiple_of(w.ne[2]) || !x.ne[3].is_multiple_of(w.ne[3]) {
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
