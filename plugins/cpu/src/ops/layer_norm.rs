//! y = (x - mean(x)) · rsqrt(mean((x - mean(x))²) + eps) · w + b, over rows; w and b may be left out.

use super::check::{self, Answer};
use super::{Args, Output, Worker};
use crate::simd::{LANES, Simd, dispatch};
use llmrt_plugin::abi::op::NormParams;
use llmrt_plugin::{DType, NodeView};

pub fn supports(node: &NodeView<'_>) -> Answer {
    check::params(NormParams::from_bytes(node.params_bytes()))?;
    let x = check::floats(node, 0)?;
    for i in [1, 2] {
        if let Some(row) = check::optional_floats(node, i)? {
            check::vector(&row, x.ne()[0])?;
        }
    }
    check::result(node, DType::F32, x.ne())
}

pub fn compute(w: &mut Worker<'_>, a: &Args, out: Output<'_>) {
    let eps = a.params(NormParams::from_bytes).eps;
    let [weight, bias] = [1, 2].map(|i| a.src[i].as_ref().map(|t| t.row([0; 3])));
    for (at, y) in out.rows() {
        let x = a.arg(0).row(at);
        let y = y.floats();
        let n = x.len() as f32;
        let mean = sum(w.isa, x) / n;
        let scale = (sum_of_squares_about(w.isa, x, mean) / n + eps).sqrt().recip();
        for (i, (y, x)) in y.iter_mut().zip(x).enumerate() {
            *y = (x - mean) * scale * weight.map_or(1.0, |w| w[i]) + bias.map_or(0.0, |b| b[i]);
        }
    }
}

dispatch! {
    /// Σ x, 16 lanes side by side.
    pub fn sum(x: &[f32]) -> f32 = sum_with;
    /// Σ (x - mean)², 16 lanes side by side.
    pub fn sum_of_squares_about(x: &[f32], mean: f32) -> f32 = sum_of_squares_about_with;
}

#[inline(always)]
fn sum_with<S: Simd>(s: S, x: &[f32]) -> f32 {
    let (vectors, rest) = x.as_chunks::<LANES>();
    let mut sum = s.zero();
    for v in vectors {
        sum = s.add(sum, s.load(v));
    }
    s.sum(s.add(sum, s.load_part(rest)))
}

#[inline(always)]
fn sum_of_squares_about_with<S: Simd>(s: S, x: &[f32], mean: f32) -> f32 {
    let (vectors, rest) = x.as_chunks::<LANES>();
    let mean_lanes = s.splat(mean);
    let mut sum = s.zero();
    for v in vectors {
        let v = s.sub(s.load(v), mean_lanes);
        sum = s.fma(v, v, sum);
    }
    // Padding with the mean adds zeros.
    let mut padded = [mean; LANES];
    padded[..rest.len()].copy_from_slice(rest);
    let v = s.sub(s.load(&padded), mean_lanes);
    s.sum(s.fma(v, v, sum))
}
