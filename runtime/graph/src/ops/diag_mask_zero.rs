//! y[i, j] = x[i, j], 0 where i > n_past + j, i counting dim 0 and j dim 1, as ggml's diag_mask_zero.
//!
//! Result: dtype (F32, F16 or BF16) and shape of x.

use super::diag_mask_inf::{infer, mask_cases, masked};
use super::{Rules, case::Case, check, value::Value};
use crate::graph::Graph;
use crate::tensor::Tensor;
use llmrt_abi::{Op, op::DiagMaskParams};

impl Graph {
    /// `x` with 0 in row j past element n_past + j.
    pub fn diag_mask_zero(&mut self, x: Tensor, n_past: u32) -> Tensor {
        self.push(Op::DiagMaskZero, &[Some(x)], &DiagMaskParams { n_past }.to_bytes())
    }
}

pub(super) const RULES: Rules = Rules { infer, reference, decompose: None, cases };

fn reference(src: &[Option<&Value>], params: &[u8]) -> Value {
    masked(check::arg(src, 0), params, 0.0)
}

fn cases() -> Vec<Case> {
    mask_cases(|g, x, n_past| {
        g.diag_mask_zero(x, n_past);
    })
}
