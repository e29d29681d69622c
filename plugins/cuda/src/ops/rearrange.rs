//! Elements of any dtype without blocks put elsewhere: fills, triangles, diagonals, shifts, padding, blocks put into
//! others. kernels/moves.cu.

use super::check::{self, Answer, ensure, params};
use super::element::element;
use super::rows::{any, bytes, n_units, units};
use super::{Form, blocks, missing, source};
use crate::call::Call;
use llmrt_plugin::abi::op::*;
use llmrt_plugin::{NodeView, Op, Reason, Result};

pub const REARRANGE: Form = (supports, compute);

/// What the kernel is kernel_params: its number for the op, numbers, and the value where no element comes to stand.
struct KernelParams {
    kind: u32,
    n: [i64; 5],
    value: f32,
}

/// From the op's params; `None`: newer than this code.
fn kernel_params(node: &NodeView<'_>) -> Option<KernelParams> {
    let bytes = node.params_bytes();
    let kernel_params = |kind, n| KernelParams { kind, n, value: 0.0 };
    Some(match node.op()? {
        Op::Fill => KernelParams { value: FillParams::from_bytes(bytes)?.value, ..kernel_params(0, [0; 5]) },
        Op::Tri => kernel_params(1, [TriParams::from_bytes(bytes)?.kind.into(), 0, 0, 0, 0]),
        Op::Diag => kernel_params(2, [0; 5]),
        Op::Roll => {
            let p = RollParams::from_bytes(bytes)?;
            kernel_params(3, [p.shift0, p.shift1, p.shift2, p.shift3, 0].map(i64::from))
        }
        Op::Pad => {
            let p = PadParams::from_bytes(bytes)?;
            let n = [p.before0, p.before1, p.before2, p.before3, p.mode].map(i64::from);
            KernelParams { value: p.value, ..kernel_params(4, n) }
        }
        Op::Set => {
            let p = BlockParams::from_bytes(bytes)?;
            kernel_params(5, [p.start0, p.start1, p.start2, p.start3, 0].map(i64::from))
        }
        _ => return None,
    })
}

fn supports(node: &NodeView<'_>) -> Answer {
    let (kernel_params, x) = (params(kernel_params(node))?, any(node, 0)?);
    // Blocks move along the outer dims; a number between them is none.
    let is_rolled = node.op() == Some(Op::Roll) && kernel_params.n[0] == 0;
    ensure(is_rolled || element(x.dtype(), kernel_params.value).is_some(), Reason::Type)?;
    let mut ne = x.ne();
    match node.op() {
        Some(Op::Tri) => ensure((0..4).contains(&kernel_params.n[0]), Reason::Param)?,
        Some(Op::Diag) => {
            ensure(ne[1] == 1, Reason::Shape)?;
            ne[1] = ne[0];
        }
        Some(Op::Roll) => ensure(!ne.contains(&0), Reason::Shape)?,
        Some(Op::Pad) => ne = padded(&PadParams::from_bytes(node.params_bytes()).unwrap_or_default(), ne)?,
        Some(Op::Set) => {
            let b = any(node, 1)?;
            ensure(b.dtype() == x.dtype(), Reason::Type)?;
            ensure((0..4).all(|d| b.ne()[d] + kernel_params.n[d] as usize <= ne[d]), Reason::Shape)?;
        }
        _ => {}
    }
    check::result(node, x.dtype(), ne)
}

/// Dims with elements around them; those that a mode cannot take elements from are refused.
fn padded(p: &PadParams, mut ne: [usize; 4]) -> Result<[usize; 4], Reason> {
    ensure(p.mode < 3, Reason::Param)?;
    let around = [(p.before0, p.after0), (p.before1, p.after1), (p.before2, p.after2), (p.before3, p.after3)];
    for (n, (before, after)) in ne.iter_mut().zip(around) {
        let (before, after) = (before as usize, after as usize);
        let most = if p.mode == 1 { n.saturating_sub(1) } else { usize::MAX };
        ensure(before <= most && after <= most && (p.mode == 0 || *n > 0), Reason::Shape)?;
        *n = before.checked_add(after).and_then(|sum| sum.checked_add(*n)).ok_or(Reason::Shape)?;
    }
    Ok(ne)
}

fn compute(call: &mut Call<'_>, node: &NodeView<'_>) -> Result<()> {
    let (x, y) = (source(node, 0)?, node.dst());
    let kernel_params = kernel_params(node).ok_or_else(missing)?;
    let b = node.src(1).unwrap_or(x);
    let args = units(&x)?.then(units(&b)?).then(units(&y)?);
    let args = kernel_params.n.into_iter().fold(args, |args, n| args.count(n as usize)).count(bytes(&y));
    let args = args.address(element(y.dtype(), kernel_params.value).unwrap_or(0)).int(kernel_params.kind);
    call.launch(("moves", "rearrange"), blocks(n_units(&y), 256), 256, args)
}
