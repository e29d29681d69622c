//! Attention over contiguous keys: kernels/attention_contiguous.cu. Packed keys and values become floats first.

use super::check::{self, Answer, ensure, params};
use super::{Form, mul_mat, rows, source};
use crate::call::{Args, Call};
use llmrt_plugin::abi::op::AttentionContiguousParams;
use llmrt_plugin::{DType, NodeView, Reason, Result};

pub const ATTENTION_CONTIGUOUS: Form = (supports, compute);

/// Numbers of a head that the kernel has room for.
const LARGEST_HEAD: usize = 1024;
/// Blocks that a grid has in its second and third dim.
const MAX_GRID: usize = 65535;

fn supports(node: &NodeView<'_>) -> Answer {
    let p = params(AttentionContiguousParams::from_bytes(node.params_bytes()))?;
    let [head_dim, n_q, n_heads, n] = check::of(node, 0, DType::F32)?.ne();
    let (k, v) = (mul_mat::weights(node, 1)?.ne(), mul_mat::weights(node, 2)?.ne());
    ensure(head_dim.max(v[0]) <= LARGEST_HEAD && n_heads <= MAX_GRID && n <= MAX_GRID, Reason::Shape)?;
    ensure(k[0] == head_dim && v[1] == k[1], Reason::Shape)?;
    let shared = |ne: [usize; 4]| n_heads.is_multiple_of(ne[2]) && n.is_multiple_of(ne[3]);
    ensure(shared(k) && shared(v), Reason::Shape)?;
    if let Some(mask) = node.src(3) {
        ensure(matches!(mask.dtype(), Some(DType::F16 | DType::F32)), Reason::Type)?;
        ensure(mask.ne()[0] == k[1] && mask.ne()[1] >= n_q && shared(mask.ne()), Reason::Shape)?;
    }
    ensure(p.max_bias <= 0.0 || p.max_bias.is_nan() || node.src(3).is_some(), Reason::Param)?;
    if let Some(sinks) = check::optional(node, 4, DType::F32)? {
        check::vector(&sinks, n_heads)?;
    }
    check::result(node, Some(DType::F32), [v[0], n_heads, n_q, n])
}

/// Bytes of a supported node's keys and values as floats, if they are packed.
pub fn workspace(node: &NodeView<'_>) -> Result<usize> {
    Ok(rows::unpacked_bytes(&source(node, 1)?) + rows::unpacked_bytes(&source(node, 2)?))
}

fn compute(call: &mut Call<'_>, node: &NodeView<'_>) -> Result<()> {
    let p = AttentionContiguousParams::from_bytes(node.params_bytes()).unwrap_or_default();
    let q = source(node, 0)?;
    let [_, n_q, n_heads, n] = q.ne();
    let k = rows::unpacked(call, &source(node, 1)?)?;
    let v = rows::unpacked(call, &source(node, 2)?)?;
    let args = Args::default().tensor(&q)?.then(k).then(v).optional(node.src(3))?.optional(node.src(4))?;
    let args = args.tensor(&node.dst())?.float(p.scale).float(p.softcap).float(p.max_bias);
    call.launch(("attention_contiguous", "attention_contiguous"), [n_q, n_heads, n], 128, args)
}
