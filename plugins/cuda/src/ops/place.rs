//! Numbers by where they are: masks, triangles, shifts, padding, blocks put into others. kernels/place.cu.

use super::check::{self, Answer, ensure, numbers, params};
use super::{Form, blocks, source};
use crate::call::{Args, Call};
use llmrt_plugin::abi::op::*;
use llmrt_plugin::{DType, NodeView, Op, Reason, Result};

pub const PLACE: Form = (supports, compute);

/// What the kernel is told: its number for the op, numbers, the value elsewhere, a step.
struct Told {
    kind: u32,
    n: [i64; 5],
    value: f32,
    step: f32,
}

/// From the op's params; `None`: newer than this code.
fn told(node: &NodeView<'_>) -> Option<Told> {
    let bytes = node.params_bytes();
    let told = |kind, n| Told { kind, n, value: 0.0, step: 0.0 };
    Some(match node.op()? {
        op @ (Op::DiagMaskInf | Op::DiagMaskZero) => {
            let n_past = DiagMaskParams::from_bytes(bytes)?.n_past.into();
            let value = if op == Op::DiagMaskInf { f32::NEG_INFINITY } else { 0.0 };
            Told { value, ..told(0, [n_past, 0, 0, 0, 0]) }
        }
        Op::Tri => told(1, [TriParams::from_bytes(bytes)?.kind.into(), 0, 0, 0, 0]),
        Op::Diag => told(2, [0; 5]),
        Op::Roll => {
            let p = RollParams::from_bytes(bytes)?;
            told(3, [p.shift0, p.shift1, p.shift2, p.shift3, 0].map(i64::from))
        }
        Op::Pad => {
            let p = PadParams::from_bytes(bytes)?;
            let n = [p.before0, p.before1, p.before2, p.before3, p.mode].map(i64::from);
            Told { value: p.value, ..told(4, n) }
        }
        op @ (Op::Set | Op::Acc) => {
            let p = BlockParams::from_bytes(bytes)?;
            let n = [p.start0, p.start1, p.start2, p.start3, 0].map(i64::from);
            told(if op == Op::Set { 5 } else { 6 }, n)
        }
        Op::AddId => told(7, [0; 5]),
        Op::Arange => {
            let p = ArangeParams::from_bytes(bytes)?;
            Told { value: p.start, step: p.step, ..told(8, [0; 5]) }
        }
        _ => return None,
    })
}

fn supports(node: &NodeView<'_>) -> Answer {
    params(told(node))?;
    let bytes = node.params_bytes();
    if node.op() == Some(Op::Arange) {
        let p = ArangeParams::from_bytes(bytes).unwrap_or_default();
        let n = ((p.stop - p.start) / p.step).ceil();
        ensure((1.0..=u32::MAX as f32).contains(&n), Reason::Param)?;
        return check::result(node, Some(DType::F32), [n as usize, 1, 1, 1]);
    }
    let x = numbers(node, 0)?;
    let mut ne = x.ne();
    match node.op() {
        Some(Op::Tri) => ensure(TriParams::from_bytes(bytes).unwrap_or_default().kind < 4, Reason::Param)?,
        Some(Op::Diag) => {
            ensure(ne[1] == 1, Reason::Shape)?;
            ne[1] = ne[0];
        }
        Some(Op::Roll) => ensure(!ne.contains(&0), Reason::Shape)?,
        Some(Op::Pad) => ne = padded(&PadParams::from_bytes(bytes).unwrap_or_default(), ne)?,
        Some(Op::Set | Op::Acc) => {
            let (b, p) = (numbers(node, 1)?, BlockParams::from_bytes(bytes).unwrap_or_default());
            ensure(b.dtype() == x.dtype(), Reason::Type)?;
            let starts = [p.start0, p.start1, p.start2, p.start3];
            ensure((0..4).all(|d| b.ne()[d] + starts[d] as usize <= ne[d]), Reason::Shape)?;
        }
        Some(Op::AddId) => {
            let (b, ids) = (numbers(node, 1)?.ne(), check::of(node, 2, DType::I32)?.ne());
            ensure(ne[3] == 1 && b == [ne[0], b[1], 1, 1] && ids == [ne[1], ne[2], 1, 1], Reason::Shape)?;
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
    let y = node.dst();
    let told = told(node).ok_or_else(super::missing)?;
    // Without a source the result stands in for it, and is not read.
    let x = if node.n_src() == 0 { y } else { source(node, 0)? };
    let args = Args::default().tensor(&x)?.optional(node.src(1))?.optional(node.src(2))?.tensor(&y)?;
    let args = told.n.into_iter().fold(args, |args, n| args.count(n as usize));
    let args = args.int(told.kind).float(told.value).float(told.step);
    call.launch(("place", "place"), blocks(y.n_elements(), 256), 256, args)
}
