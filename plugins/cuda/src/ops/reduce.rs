//! Rows summed, searched and put in order: kernels/reduce.cu, a block per row.

use super::check::{self, Answer, ensure};
use super::{Form, norm, source};
use crate::call::{Args, Call};
use llmrt_plugin::{DType, NodeView, Op, Reason, Result};

pub const REDUCE: Form = (supports, compute);
pub const SUM: Form = (supports_sum, sum);
pub const COUNT_EQUAL: Form = (supports_count, count);

fn supports(node: &NodeView<'_>) -> Answer {
    let x = check::of(node, 0, DType::F32)?;
    let [n, n1, n2, n3] = x.ne();
    ensure(n > 0 && n <= i32::MAX as usize, Reason::Shape)?;
    match node.op() {
        Some(Op::Argmax) => check::result(node, Some(DType::I32), [n1, n2, n3, 1]),
        Some(Op::Cumsum) => check::result(node, Some(DType::F32), x.ne()),
        _ => check::result(node, Some(DType::F32), [1, n1, n2, n3]),
    }
}

fn compute(call: &mut Call<'_>, node: &NodeView<'_>) -> Result<()> {
    let (x, y) = (source(node, 0)?, node.dst());
    let n = x.ne()[0];
    let (kernel, kind, threads) = match node.op() {
        Some(Op::Argmax) => ("argmax", 0, norm::threads_of_parts(n)),
        Some(Op::Mean) => ("reduce", 1, norm::threads(n)),
        Some(Op::Cumsum) => ("reduce", 2, norm::threads(n)),
        _ => ("reduce", 0, norm::threads(n)),
    };
    let args = Args::default().tensor(&x)?.tensor(&y)?.int(kind);
    call.launch(("reduce", kernel), [x.n_rows(), 1, 1], threads, args)
}

fn supports_sum(node: &NodeView<'_>) -> Answer {
    check::result(node, check::numbers(node, 0)?.dtype(), [1; 4])
}

fn sum(call: &mut Call<'_>, node: &NodeView<'_>) -> Result<()> {
    let args = Args::default().tensor(&source(node, 0)?)?.tensor(&node.dst())?.int(0);
    call.launch(("reduce", "sum_all"), [1, 1, 1], 256, args)
}

fn supports_count(node: &NodeView<'_>) -> Answer {
    let (a, b) = (check::of(node, 0, DType::I32)?, check::of(node, 1, DType::I32)?);
    ensure(a.ne() == b.ne(), Reason::Shape)?;
    check::result(node, Some(DType::I64), [1; 4])
}

fn count(call: &mut Call<'_>, node: &NodeView<'_>) -> Result<()> {
    let args = Args::default().tensor(&source(node, 0)?)?.tensor(&source(node, 1)?)?.tensor(&node.dst())?;
    call.launch(("reduce", "count_equal"), [1, 1, 1], 256, args)
}
