//! Rotary position embedding: kernels/rope.cu.

use super::check::{self, Answer, ensure, numbers, params};
use super::{Form, blocks, source};
use crate::call::{Args, Call};
use llmrt_plugin::abi::op::RopeParams;
use llmrt_plugin::{DType, NodeView, Reason, Result};
use std::f32::consts::PI;

pub const ROPE: Form = (supports, compute);

const NORMAL: u32 = 0;
const NEOX: u32 = 2;
const MROPE: u32 = 8;
const VISION: u32 = 24;
const INTERLEAVED: u32 = 40;

fn supports(node: &NodeView<'_>) -> Answer {
    let p = params(RopeParams::from_bytes(node.params_bytes()))?;
    let x = numbers(node, 0)?;
    let (ne, n_dims, offset) = (x.ne(), p.n_dims as usize, p.offset as usize);
    ensure(n_dims > 0 && n_dims.is_multiple_of(2) && offset.is_multiple_of(2), Reason::Param)?;
    ensure(offset.saturating_add(n_dims) <= ne[0] && p.back <= 1, Reason::Param)?;
    ensure([NORMAL, NEOX, MROPE, VISION, INTERLEAVED].contains(&p.mode), Reason::Param)?;
    ensure(p.mode != VISION || (n_dims.checked_mul(2) == Some(ne[0]) && offset == 0), Reason::Param)?;
    let mut n_positions = ne[2];
    if matches!(p.mode, MROPE | VISION | INTERLEAVED) {
        let [s0, s1, s2, s3] = sections(&p).map(u64::from);
        ensure(s0 + s1 + s2 > 0 && s0 + s1 + s2 + s3 <= ne[0] as u64, Reason::Param)?;
        n_positions = ne[2].checked_mul(4).ok_or(Reason::Shape)?;
    }
    check::vector(&check::of(node, 1, DType::I32)?, n_positions)?;
    if let Some(factors) = check::optional(node, 2, DType::F32)? {
        ensure(factors.ne()[0] >= n_pairs(&p) && factors.ne()[1..] == [1; 3], Reason::Shape)?;
    }
    check::result(node, x.dtype(), ne)
}

fn compute(call: &mut Call<'_>, node: &NodeView<'_>) -> Result<()> {
    let p = RopeParams::from_bytes(node.params_bytes()).unwrap_or_default();
    let (x, y) = (source(node, 0)?, node.dst());
    let (low, high) = yarn_range(&p);
    let args = Args::default().tensor(&x)?.tensor(&source(node, 1)?)?.optional(node.src(2))?.tensor(&y)?;
    let args = args.int(p.n_dims).int(p.mode).float(p.freq_base).float(p.freq_scale);
    let args = args.float(p.ext_factor).float(p.attn_factor).float(low).float(high);
    let args = sections(&p).into_iter().fold(args, Args::int).int(p.back).int(p.offset);
    let per_row = x.ne()[0] - n_pairs(&p);
    call.launch(("rope", "rope"), blocks(per_row * x.n_rows(), 128), 128, args)
}

fn n_pairs(p: &RopeParams) -> usize {
    if p.mode == VISION { p.n_dims as usize } else { p.n_dims as usize / 2 }
}

fn sections(p: &RopeParams) -> [u32; 4] {
    [p.section0, p.section1, p.section2, p.section3]
}

/// YaRN's correction range: pairs before it are extrapolated, pairs past it interpolated.
fn yarn_range(p: &RopeParams) -> (f32, f32) {
    let n = p.n_dims as f32;
    let pair_with =
        |rotations: f32| n * (p.n_ctx_orig as f32 / (rotations * 2.0 * PI)).ln() / (2.0 * p.freq_base.ln());
    (pair_with(p.beta_fast).floor().max(0.0), pair_with(p.beta_slow).ceil().min(n - 1.0))
}
