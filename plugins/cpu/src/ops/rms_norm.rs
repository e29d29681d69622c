//! y = x · rsqrt(mean(x²) + eps) · w, over rows; w may be left out.

use super::check::{self, Answer};
use super::{Args, Output, Worker};
use crate::simd::{LANES, Simd, dispatch};
use llmrt_plugin::abi::op::NormParams;
use llmrt_plugin::{DType, NodeView};

pub fn supports(node: &NodeView<'_>) -> Answer {
    check::params(NormParams::from_bytes(node.params_bytes()))?;
    let x = check::floats(node, 0)?;
    if let Some(weight) = check::optional_floats(node, 1)? {
        check::vector(&weight, x.ne()[0])?;
    }
    check::result(node, DType::F32, x.ne())
}

pub fn compute(w: &mut Worker<'_>, a: &Args, out: Output<'_>) {
    let eps = a.params(NormParams::from_bytes).eps;
    let weight = a.src[1].as_ref().map(|t| t.row([0; 3]));
    for (at, y) in out.rows() {
        let x = a.arg(0).row(at);
        let y = y.floats();
        let mean_sq = sum_of_squares(w.isa, x) / x.len() as f32;
        let scale = (mean_sq + eps).sqrt().recip();
        match weight {
            Some(weight) => y.iter_mut().zip(x.iter().zip(weight)).for_each(|(y, (x, w))| *y = x * scale * w),
            None => y.iter_mut().zip(x).for_each(|(y, x)| *y = x * scale),
        }
    }
}

dispatch! {
    fn sum_of_squares(x: &[f32]) -> f32 = sum_of_squares_with;
}

#[inline(always)]
fn sum_of_squares_with<S: Simd>(s: S, x: &[f32]) -> f32 {
    let (vectors, rest) = x.as_chunks::<LANES>();
    let mut sum = s.zero();
    for v in vectors {
        let v = s.load(v);
        sum = s.fma(v, v, sum);
    }
    if !rest.is_empty() {
        let v = s.load_part(rest);
        sum = s.fma(v, v, sum);
    }
    s.sum(sum)
}
