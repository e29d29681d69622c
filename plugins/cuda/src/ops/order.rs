//! Rows put in order: kernels/order.cu. Runs first, then neighbouring runs are merged until one is left.

use super::check::{self, Answer, ensure, params};
use super::{Form, pieces, source};
use crate::call::{Args, Call};
use llmrt_plugin::abi::op::{ArgsortParams, TopKParams};
use llmrt_plugin::{DType, NodeView, Op, Reason, Result, TensorView};

pub const ORDER: Form = (supports, compute);

/// Numbers of a run.
const RUN: usize = 1024;

fn supports(node: &NodeView<'_>) -> Answer {
    let mut ne = check::of(node, 0, DType::F32)?.ne();
    ensure(ne[0] <= i32::MAX as usize, Reason::Shape)?;
    if node.op() == Some(Op::TopK) {
        let k = params(TopKParams::from_bytes(node.params_bytes()))?.k as usize;
        ensure(k <= ne[0], Reason::Shape)?;
        ne[0] = k;
    } else {
        ensure(params(ArgsortParams::from_bytes(node.params_bytes()))?.descending < 2, Reason::Param)?;
    }
    check::result(node, Some(DType::I32), ne)
}

/// Bytes of a supported node's runs, in two halves.
pub fn workspace(node: &NodeView<'_>) -> Result<usize> {
    let x = source(node, 0)?;
    Ok(if x.ne()[0] > RUN { pieces(&[half_bytes(&x); 2]) } else { 0 })
}

fn half_bytes(x: &TensorView<'_>) -> usize {
    x.n_elements() * 4
}

fn compute(call: &mut Call<'_>, node: &NodeView<'_>) -> Result<()> {
    let (x, y) = (source(node, 0)?, node.dst());
    let descending = match node.op() {
        Some(Op::TopK) => 1,
        _ => ArgsortParams::from_bytes(node.params_bytes()).unwrap_or_default().descending,
    };
    let (n, n_rows) = (x.ne()[0], x.n_rows());
    // Merges go from one half to the other, the last one into the result.
    let halves = match n > RUN {
        true => [call.scratch(half_bytes(&x))?, call.scratch(half_bytes(&x))?],
        false => [0; 2],
    };
    let args = |from: u64, to: u64, width: usize| -> Result<Args> {
        let args = Args::default().tensor(&x)?.tensor(&y)?.address(from).address(to);
        Ok(args.count(width).int(descending))
    };
    call.launch(("order", "order_runs"), [n.div_ceil(RUN) * n_rows, 1, 1], 256, args(0, halves[0], RUN)?)?;
    let (mut width, mut at) = (RUN, 0);
    while width < n {
        let to = if 2 * width < n { halves[1 - at] } else { 0 };
        let args = args(halves[at], to, width)?;
        call.launch(("order", "order_merge"), [n.div_ceil(256) * n_rows, 1, 1], 256, args)?;
        (width, at) = (2 * width, 1 - at);
    }
    Ok(())
}
