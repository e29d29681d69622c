//! Triangles of matrices: tri keeps one, diag_mask_zero and diag_mask_inf put 0 or -inf past a diagonal.

use super::check::{self, Answer, ensure};
use super::source;
use super::steps::has;
use crate::call::{Call, run};
use crate::chip::Chip;
use crate::library::Cann;
use crate::operand::Operand;
use crate::sys::*;
use llmrt_plugin::abi::op::{DiagMaskParams, TriParams};
use llmrt_plugin::{NodeView, Op, Reason, Result};

pub fn supports(cann: &Cann, chip: &Chip, node: &NodeView<'_>) -> Answer {
    has!(cann, math.aclnnTriu, math.aclnnTril, math.aclnnInplaceTriu, math.aclnnAdd)?;
    has!(cann, math.aclnnInplaceFillScalar, math.aclnnInplaceCopy, math.aclnnCast)?;
    let (x, params) = (check::floats(chip, node, 0)?, node.params_bytes());
    match node.op() {
        Some(Op::Tri) => {
            let kind = check::params(TriParams::from_bytes(params))?.kind;
            ensure(kind < 4, Reason::Param)?;
            check::result(node, x.dtype(), x.ne())
        }
        _ => {
            let n_past = check::params(DiagMaskParams::from_bytes(params))?.n_past;
            ensure(n_past < i32::MAX as u32, Reason::Param)?;
            check::float_result(chip, node, x.ne())
        }
    }
}

pub fn compute(call: &mut Call<'_>, node: &NodeView<'_>) -> Result<()> {
    let (x, y, params) = (source(node, 0)?, Operand::of(&node.dst())?, node.params_bytes());
    if node.op() == Some(Op::Tri) {
        let placed = call.place(&y, x.dtype)?;
        // Upper with and without the diagonal, lower with and without.
        match TriParams::from_bytes(params).unwrap_or_default().kind {
            0 => upper(call, &x, 0, &placed)?,
            1 => upper(call, &x, 1, &placed)?,
            2 => lower(call, &x, 0, &placed)?,
            _ => lower(call, &x, -1, &placed)?,
        }
        return call.store(&placed, &y);
    }
    let n_past = i64::from(DiagMaskParams::from_bytes(params).unwrap_or_default().n_past);
    let (x, placed) = (call.to(&x, ACL_FLOAT)?, call.place(&y, ACL_FLOAT)?);
    lower(call, &x, n_past, &placed)?;
    if node.op() == Some(Op::DiagMaskInf) {
        let mask = call.temporary(ACL_FLOAT, &x.ne[..2])?;
        call.fill(&mask, f32::NEG_INFINITY)?;
        let t = call.tensor(&mask)?;
        run!(call, math.aclnnInplaceTriu(t, n_past + 1))?;
        call.add(&placed, &mask, &placed)?;
    }
    call.store(&placed, &y)
}

fn upper(call: &mut Call<'_>, x: &Operand, diagonal: i64, y: &Operand) -> Result<()> {
    let (x, y) = (call.tensor(x)?, call.tensor(y)?);
    run!(call, math.aclnnTriu(x, diagonal, y))
}

fn lower(call: &mut Call<'_>, x: &Operand, diagonal: i64, y: &Operand) -> Result<()> {
    let (x, y) = (call.tensor(x)?, call.tensor(y)?);
    run!(call, math.aclnnTril(x, diagonal, y))
}
