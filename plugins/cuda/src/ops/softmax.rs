//! Softmax of rows, and the router's weights of chosen experts: kernels/softmax.cu.

use super::check::{self, Answer, ensure, params};
use super::{Form, norm, source};
use crate::call::{Args, Call};
use llmrt_plugin::abi::op::{MoeWeightsParams, SoftMaxParams};
use llmrt_plugin::{DType, NodeView, Reason, Result};

pub const SOFT_MAX: Form = (supports, compute);
pub const MOE_WEIGHTS: Form = (supports_router, router);

fn supports(node: &NodeView<'_>) -> Answer {
    let p = params(SoftMaxParams::from_bytes(node.params_bytes()))?;
    let ne = check::of(node, 0, DType::F32)?.ne();
    if let Some(mask) = node.src(1) {
        ensure(matches!(mask.dtype(), Some(DType::F16 | DType::F32)), Reason::Type)?;
        let m = mask.ne();
        ensure(m[0] == ne[0] && m[1] >= ne[1] && m[2] > 0 && m[3] > 0, Reason::Shape)?;
        ensure(ne[2].is_multiple_of(m[2]) && ne[3].is_multiple_of(m[3]), Reason::Shape)?;
    }
    ensure(p.max_bias <= 0.0 || p.max_bias.is_nan() || node.src(1).is_some(), Reason::Param)?;
    if let Some(sinks) = check::optional(node, 2, DType::F32)? {
        check::vector(&sinks, ne[2])?;
    }
    check::result(node, Some(DType::F32), ne)
}

fn compute(call: &mut Call<'_>, node: &NodeView<'_>) -> Result<()> {
    let (x, y) = (source(node, 0)?, node.dst());
    let p = SoftMaxParams::from_bytes(node.params_bytes()).unwrap_or_default();
    let args = Args::default().tensor(&x)?.optional(node.src(1))?.optional(node.src(2))?.tensor(&y)?;
    let args = args.float(p.scale).float(p.max_bias);
    call.launch(("softmax", "soft_max"), [x.n_rows(), 1, 1], norm::threads(x.ne()[0]), args)
}

fn supports_router(node: &NodeView<'_>) -> Answer {
    let p = params(MoeWeightsParams::from_bytes(node.params_bytes()))?;
    ensure(p.gating <= 2 && p.normalise < 2, Reason::Param)?;
    let logits = check::of(node, 0, DType::F32)?.ne();
    let ids = check::of(node, 1, DType::I32)?.ne();
    ensure(logits[2..] == [1, 1] && ids[2..] == [1, 1] && logits[1] == ids[1], Reason::Shape)?;
    check::result(node, Some(DType::F32), [1, ids[0], ids[1], 1])
}

fn router(call: &mut Call<'_>, node: &NodeView<'_>) -> Result<()> {
    let (ids, y) = (source(node, 1)?, node.dst());
    let p = MoeWeightsParams::from_bytes(node.params_bytes()).unwrap_or_default();
    let args = Args::default().tensor(&source(node, 0)?)?.tensor(&ids)?.tensor(&y)?;
    let factor = if p.scale == 0.0 { 1.0 } else { p.scale };
    let args = args.int(p.gating).int(p.normalise).float(factor);
    call.launch(("softmax", "moe_weights"), [ids.ne()[1].div_ceil(4), 1, 1], 128, args)
}
