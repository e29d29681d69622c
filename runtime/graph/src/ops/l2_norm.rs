//! y = x / max(√Σx², eps), over rows (ggml's `l2_norm`).
//!
//! Result: F32 in the shape of x, which is F32.

use super::{Inferred, Rules, case::Case, check, value::Value};
use crate::graph::Graph;
use crate::tensor::{Tensor, TensorDef};
use llmrt_abi::{DType, Op, op::NormParams};

impl Graph {
    /// Rows of `x` (F32, at any strides) divided by their length, which counts as at least `eps`.
    pub fn l2_norm(&mut self, x: Tensor, eps: f32) -> Tensor {
        self.push(Op::L2Norm, &[Some(x)], &NormParams { eps }.to_bytes())
    }
}

pub(super) const RULES: Rules = Rules { infer, reference, decompose: None, cases };

fn infer(src: &[Option<&TensorDef>], params: &[u8]) -> Inferred {
    let eps = check::params(NormParams::from_bytes(params))?.eps;
    if eps.is_nan() || eps < 0.0 {
        return Err(format!("eps is {eps}, expected at least 0"));
    }
    Ok((DType::F32, check::any_floats(src, 0, "x")?.ne))
}

fn reference(src: &[Option<&Value>], params: &[u8]) -> Value {
    let eps = NormParams::from_bytes(params).unwrap_or_default().eps;
    let x = check::arg(src, 0);
    let mut y = Vec::with_capacity(x.floats().len());
    for i in 0..x.n_rows() {
        let length = x.row(i).iter().map(|&v| (v as f64).powi(2)).sum::<f64>().sqrt() as f32;
        y.extend(x.row(i).iter().map(|v| v / length.max(eps)));
    }
    Value::f32(x.ne, y)
}

fn cases() -> Vec<Case> {
    let mut cases = vec![];
    for ne in [[64, 5, 4, 3], [1, 1, 1, 1], [33, 7, 1, 1], [1025, 5, 4, 3], [4096, 2, 1, 1], [15, 1, 70, 2]] {
        for eps in [0.0, 1e-6, 1e-4, 1e-1, 10.0] {
            cases.push(Case::new(format!("rows of {ne:?}, eps {eps}"), |g, _| {
                let x = g.input("x", DType::F32, &ne);
                g.l2_norm(x, eps);
            }));
        }
    }
    for axes in [[0, 2, 1, 3], [1, 0, 2, 3], [3, 1, 2, 0]] {
        cases.push(Case::new(format!("permuted by {axes:?}"), |g, _| {
            let x = g.input("x", DType::F32, &[20, 5, 4, 33]);
            let x = g.permute(x, axes);
            g.l2_norm(x, 1e-6);
        }));
    }
    cases.push(Case::new("strided rows", |g, _| {
        let x = g.input("x", DType::F32, &[96, 5]);
        let x = g.slice(x, 0, 32, 63);
        g.l2_norm(x, 1e-12);
    }));
    cases
}

#[cfg(test)]
mod tests {
    use super::super::tests::{check, floats};
    use super::*;

    #[test]
    fn a_short_row_is_divided_by_eps() {
        for (eps, expected) in [(0.0, [0.6, -0.8]), (5.0, [0.6, -0.8]), (10.0, [0.3, -0.4])] {
            let build = |g: &mut Graph| {
                let x = g.input("x", DType::F32, &[2]);
                g.l2_norm(x, eps)
            };
            check(build, &[("x", floats(&[3., -4.]))], &expected);
        }
    }
}
