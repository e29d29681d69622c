//! Norms of rows: kernels/norm.cu, a block per row.

use super::check::{self, Answer, ensure, params};
use super::{Form, source};
use crate::call::{Args, Call};
use llmrt_plugin::abi::op::NormParams;
use llmrt_plugin::{DType, NodeView, Op, Reason, Result};

pub const NORM: Form = (supports, compute);

fn supports(node: &NodeView<'_>) -> Answer {
    let p = params(NormParams::from_bytes(node.params_bytes()))?;
    let x = check::of(node, 0, DType::F32)?;
    ensure(node.op() != Some(Op::L2Norm) || p.eps >= 0.0, Reason::Param)?;
    for i in [1, 2] {
        if let Some(row) = check::optional(node, i, DType::F32)? {
            check::vector(&row, x.ne()[0])?;
        }
    }
    check::result(node, Some(DType::F32), x.ne())
}

fn compute(call: &mut Call<'_>, node: &NodeView<'_>) -> Result<()> {
    let (x, y) = (source(node, 0)?, node.dst());
    let eps = NormParams::from_bytes(node.params_bytes()).unwrap_or_default().eps;
    let kind = match node.op() {
        Some(Op::LayerNorm) => 1,
        Some(Op::L2Norm) => 2,
        _ => 0,
    };
    let args = Args::default().tensor(&x)?.optional(node.src(1))?.optional(node.src(2))?.tensor(&y)?;
    call.launch(("norm", "row_norm"), [x.n_rows(), 1, 1], threads(x.ne()[0]), args.int(kind).float(eps))
}

/// Whole warps for a row, up to 256 threads.
pub fn threads(n: usize) -> usize {
    n.next_multiple_of(32).clamp(32, 256)
}
