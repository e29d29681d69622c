//! Rotary position embedding: pair i of each head turns by pos · base^(-2i/n_dims), with YaRN's blend of frequencies.

use super::check::{self, Answer, ensure};
use super::{Args, Worker};
use llmrt_plugin::abi::op::RopeParams;
use llmrt_plugin::{DType, NodeView, Reason};

const NORMAL: u32 = 0;
const NEOX: u32 = 2;

pub fn supports(node: &NodeView<'_>) -> Answer {
    let p = check::params(RopeParams::from_bytes(node.params_bytes()))?;
    let ne = check::floats(node, 0)?.ne();
    let n_dims = p.n_dims as usize;
    ensure(n_dims > 0 && n_dims.is_multiple_of(2) && n_dims <= ne[0], Reason::Param)?;
    ensure(p.mode == NORMAL || p.mode == NEOX, Reason::Param)?;
    ensure(ne[3] == 1, Reason::Shape)?;
    check::vector(&check::ints(node, 1)?, ne[2])?;
    if let Some(factors) = check::optional_floats(node, 2)? {
        check::vector(&factors, n_dims / 2)?;
    }
    check::result(node, DType::F32, ne)
}

pub fn compute(w: &mut Worker<'_>, a: &Args) {
    let p = a.params(RopeParams::from_bytes);
    let (x, positions) = (a.arg(0), a.arg(1).ints([0; 3]));
    let factors = a.src[2].as_ref().map(|f| f.row([0; 3]));
    let n_heads = x.ne[1];
    let n_dims = p.n_dims as usize;
    let half = n_dims / 2;
    let mut turned = None;
    for row in w.share(n_heads * x.ne[2]) {
        let (head, token) = (row % n_heads, row / n_heads);
        let (sin, cos) = w.scratch.rows.take::<f32>(n_dims).split_at_mut(half);
        if turned.replace(token) != Some(token) {
            turns(&p, positions[token], factors, sin, cos);
        }
        let from = x.row([head, token, 0]);
        // SAFETY: rows are shared out.
        let to = unsafe { a.dst.row_mut([head, token, 0]) };
        to[n_dims..].copy_from_slice(&from[n_dims..]);
        if p.mode == NEOX {
            let (first, second) = from[..n_dims].split_at(half);
            let (to_first, to_second) = to[..n_dims].split_at_mut(half);
            for i in 0..half {
                to_first[i] = first[i] * cos[i] - second[i] * sin[i];
                to_second[i] = first[i] * sin[i] + second[i] * cos[i];
            }
        } else {
            let pairs = from[..n_dims].as_chunks::<2>().0.iter().zip(to[..n_dims].as_chunks_mut::<2>().0);
            for (i, (from, to)) in pairs.enumerate() {
                to[0] = from[0] * cos[i] - from[1] * sin[i];
                to[1] = from[0] * sin[i] + from[1] * cos[i];
            }
        }
    }
}

/// Sine and cosine of each pair at a position.
fn turns(p: &RopeParams, pos: i32, factors: Option<&[f32]>, sin: &mut [f32], cos: &mut [f32]) {
    let step = p.freq_base.powf(-2.0 / p.n_dims as f32);
    let (low, high) = yarn_range(p);
    let mut theta = pos as f32;
    for i in 0..sin.len() {
        let extrapolated = theta / factors.map_or(1.0, |f| f[i]);
        let interpolated = p.freq_scale * extrapolated;
        let (mut angle, mut magnitude) = (interpolated, p.attn_factor);
        if p.ext_factor != 0.0 {
            let ramp = 1.0 - ((i as f32 - low) / (high - low).max(0.001)).clamp(0.0, 1.0);
            let mix = ramp * p.ext_factor;
            angle = interpolated * (1.0 - mix) + extrapolated * mix;
            magnitude *= 1.0 + 0.1 * (1.0 / p.freq_scale).ln();
        }
        (sin[i], cos[i]) = (angle.sin() * magnitude, angle.cos() * magnitude);
        theta *= step;
    }
}

/// YaRN's correction range: pairs before it are extrapolated, pairs past it interpolated.
fn yarn_range(p: &RopeParams) -> (f32, f32) {
    let n = p.n_dims as f32;
    let pair_with_rotations = |rotations: f32| {
        n * (p.n_ctx_orig as f32 / (rotations * 2.0 * std::f32::consts::PI)).ln() / (2.0 * p.freq_base.ln())
    };
    (pair_with_rotations(p.beta_fast).floor().max(0.0), pair_with_rotations(p.beta_slow).ceil().min(n - 1.0))
}
