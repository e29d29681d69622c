//! Rows summed, searched and put in order: kernels/reduce.cu, a block per row.

use super::check::{self, Answer, ensure, params};
use super::{Form, norm, source};
use crate::call::{Args, Call};
use llmrt_plugin::abi::op::{ArgsortParams, TopKParams};
use llmrt_plugin::{DType, NodeView, Op, Reason, Result};

pub const REDUCE: Form = (supports, compute);
pub const SUM: Form = (supports_sum, sum);
pub const ORDER: Form = (supports_order, order);

/// Elements of a row that are put in order: each is compared with each.
const MOST_IN_ORDER: usize = 8192;

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
    let kind = match node.op() {
        Some(Op::Mean) => 1,
        Some(Op::Argmax) => 2,
        Some(Op::Cumsum) => 3,
        _ => 0,
    };
    let args = Args::default().tensor(&x)?.tensor(&y)?.int(kind);
    call.launch(("reduce", "reduce"), [x.n_rows(), 1, 1], norm::threads(x.ne()[0]), args)
}

fn supports_sum(node: &NodeView<'_>) -> Answer {
    check::of(node, 0, DType::F32)?;
    check::result(node, Some(DType::F32), [1; 4])
}

fn sum(call: &mut Call<'_>, node: &NodeView<'_>) -> Result<()> {
    let args = Args::default().tensor(&source(node, 0)?)?.tensor(&node.dst())?.int(0);
    call.launch(("reduce", "sum_all"), [1, 1, 1], 256, args)
}

fn supports_order(node: &NodeView<'_>) -> Answer {
    let mut ne = check::of(node, 0, DType::F32)?.ne();
    ensure(ne[0] <= MOST_IN_ORDER, Reason::Shape)?;
    if node.op() == Some(Op::TopK) {
        let k = params(TopKParams::from_bytes(node.params_bytes()))?.k as usize;
        ensure(k <= ne[0], Reason::Shape)?;
        ne[0] = k;
    } else {
        ensure(params(ArgsortParams::from_bytes(node.params_bytes()))?.descending < 2, Reason::Param)?;
    }
    check::result(node, Some(DType::I32), ne)
}

fn order(call: &mut Call<'_>, node: &NodeView<'_>) -> Result<()> {
    let (x, y) = (source(node, 0)?, node.dst());
    let descending = match node.op() {
        Some(Op::TopK) => 1,
        _ => ArgsortParams::from_bytes(node.params_bytes()).unwrap_or_default().descending,
    };
    let args = Args::default().tensor(&x)?.tensor(&y)?.int(descending);
    call.launch(("reduce", "order"), [x.n_rows(), 1, 1], norm::threads(x.ne()[0]), args)
}
