//! Numbers by where they are: masks, blocks and rows added, numbers at equal distances. kernels/place.cu.

use super::check::{self, Answer, ensure, numbers, params};
use super::{Form, blocks, source};
use crate::call::{Args, Call};
use llmrt_plugin::abi::op::*;
use llmrt_plugin::{DType, NodeView, Op, Reason, Result};

pub const PLACE: Form = (supports, compute);

/// What the kernel is kernel_params: its number for the op, numbers, the value elsewhere, a step.
struct KernelParams {
    kind: u32,
    n: [u32; 4],
    value: f32,
    step: f32,
}

/// From the op's params; `None`: newer than this code.
fn kernel_params(node: &NodeView<'_>) -> Option<KernelParams> {
    let bytes = node.params_bytes();
    let kernel_params = |kind, n| KernelParams { kind, n, value: 0.0, step: 0.0 };
    Some(match node.op()? {
        op @ (Op::DiagMaskInf | Op::DiagMaskZero) => {
            let n_past = DiagMaskParams::from_bytes(bytes)?.n_past;
            let value = if op == Op::DiagMaskInf { f32::NEG_INFINITY } else { 0.0 };
            KernelParams { value, ..kernel_params(0, [n_past, 0, 0, 0]) }
        }
        Op::Acc => {
            let p = BlockParams::from_bytes(bytes)?;
            kernel_params(1, [p.start0, p.start1, p.start2, p.start3])
        }
        Op::AddId => kernel_params(2, [0; 4]),
        Op::Arange => {
            let p = ArangeParams::from_bytes(bytes)?;
            KernelParams { value: p.start, step: p.step, ..kernel_params(3, [0; 4]) }
        }
        _ => return None,
    })
}

fn supports(node: &NodeView<'_>) -> Answer {
    let kernel_params = params(kernel_params(node))?;
    if node.op() == Some(Op::Arange) {
        let p = ArangeParams::from_bytes(node.params_bytes()).unwrap_or_default();
        let n = ((p.stop - p.start) / p.step).ceil();
        ensure((1.0..=u32::MAX as f32).contains(&n), Reason::Param)?;
        return check::result(node, Some(DType::F32), [n as usize, 1, 1, 1]);
    }
    let x = numbers(node, 0)?;
    let ne = x.ne();
    match node.op() {
        Some(Op::Acc) => {
            let b = numbers(node, 1)?.ne();
            ensure((0..4).all(|d| b[d] + kernel_params.n[d] as usize <= ne[d]), Reason::Shape)?;
        }
        Some(Op::AddId) => {
            let (b, ids) = (numbers(node, 1)?.ne(), check::of(node, 2, DType::I32)?.ne());
            ensure(ne[3] == 1 && b == [ne[0], b[1], 1, 1] && ids == [ne[1], ne[2], 1, 1], Reason::Shape)?;
        }
        _ => {}
    }
    check::result(node, x.dtype(), ne)
}

fn compute(call: &mut Call<'_>, node: &NodeView<'_>) -> Result<()> {
    let y = node.dst();
    let kernel_params = kernel_params(node).ok_or_else(super::missing)?;
    // Without a source the result stands in for it, and is not read.
    let x = if node.n_src() == 0 { y } else { source(node, 0)? };
    let args = Args::default().tensor(&x)?.optional(node.src(1))?.optional(node.src(2))?.tensor(&y)?;
    let args = kernel_params.n.into_iter().fold(args, |args, n| args.count(n as usize));
    let args = args.int(kernel_params.kind).float(kernel_params.value).float(kernel_params.step);
    call.launch(("place", "place"), blocks(y.n_elements(), 256), 256, args)
}
