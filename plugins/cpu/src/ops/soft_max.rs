//! y = softmax(x · scale + mask) over rows. A row of which everything is -inf gives zeros.

use super::check::{self, Answer, ensure};
use super::{Args, Worker};
use crate::simd::{LANES, Simd, dispatch, math};
use llmrt_plugin::abi::op::SoftMaxParams;
use llmrt_plugin::{DType, NodeView, Reason};

pub fn supports(node: &NodeView<'_>) -> Answer {
    check::params(SoftMaxParams::from_bytes(node.params_bytes()))?;
    let x = check::floats(node, 0)?;
    if let Some(mask) = check::optional_floats(node, 1)? {
        let (ne, mask) = (x.ne(), mask.ne());
        ensure(mask[..2] == ne[..2] && ne[2] % mask[2] == 0 && ne[3] % mask[3] == 0, Reason::Shape)?;
    }
    check::result(node, DType::F32, x.ne())
}

pub fn compute(w: &mut Worker<'_>, a: &Args) {
    let scale = a.params(SoftMaxParams::from_bytes).scale;
    for row in w.share(a.dst.n_rows()) {
        let at = a.dst.unravel(row);
        // SAFETY: rows are shared out.
        let y = unsafe { a.dst.row_mut(at) };
        let x = a.arg(0).row(at);
        match &a.src[1] {
            Some(mask) => {
                let mask = mask.row([at[0], at[1] % mask.ne[2], at[2] % mask.ne[3]]);
                y.iter_mut().zip(x.iter().zip(mask)).for_each(|(y, (x, m))| *y = x * scale + m);
            }
            None => y.iter_mut().zip(x).for_each(|(y, x)| *y = x * scale),
        }
        soft_max_row(w.isa, y);
    }
}

dispatch! {
    /// exp(v - max) / Σ exp(v - max) in place.
    pub fn soft_max_row(row: &mut [f32]) = soft_max_row_with;
}

#[inline(always)]
fn soft_max_row_with<S: Simd>(s: S, row: &mut [f32]) {
    let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    if max == f32::NEG_INFINITY {
        return row.fill(0.0);
    }
    let (vectors, rest) = row.as_chunks_mut::<LANES>();
    let mut sum = s.zero();
    for v in vectors {
        let e = math::exp(s, s.sub(s.load(v), s.splat(max)));
        sum = s.add(sum, e);
        s.store(e, v);
    }
    if !rest.is_empty() {
        let mut padded = [f32::NEG_INFINITY; LANES];
        padded[..rest.len()].copy_from_slice(rest);
        let e = math::exp(s, s.sub(s.load(&padded), s.splat(max)));
        sum = s.add(sum, e);
        s.store_part(e, rest);
    }
    let inverse = s.sum(sum).recip();
    row.iter_mut().for_each(|v| *v *= inverse);
}
