//! Sums, means, running sums and places of the largest elements of rows; the sum of everything.

use super::check::{self, Answer, ensure};
use super::source;
use super::steps::has;
use crate::call::{Call, run};
use crate::chip::Chip;
use crate::library::Cann;
use crate::operand::Operand;
use crate::sys::*;
use llmrt_plugin::{DType, NodeView, Op, Reason, Result};

pub fn supports(cann: &Cann, chip: &Chip, node: &NodeView<'_>) -> Answer {
    has!(cann, math.aclnnReduceSum, math.aclnnMean, math.aclnnCumsum, math.aclnnArgMax)?;
    has!(cann, math.aclnnCast, math.aclnnInplaceCopy)?;
    let x = check::floats(chip, node, 0)?;
    let [n, n1, n2, n3] = x.ne();
    ensure(n > 0, Reason::Shape)?;
    match node.op() {
        Some(Op::Cumsum) => check::float_result(chip, node, x.ne()),
        Some(Op::Sum) => check::float_result(chip, node, [1; 4]),
        Some(Op::Argmax) => {
            // [rows] or [1, rows]: the same elements in order.
            ensure(node.dst().dtype() == Some(DType::I32), Reason::Type)?;
            ensure(node.dst().n_elements() == n1 * n2 * n3, Reason::Shape)?;
            ensure(node.dst().is_contiguous(), Reason::Stride)
        }
        _ => check::float_result(chip, node, [1, n1, n2, n3]),
    }
}

pub fn compute(call: &mut Call<'_>, node: &NodeView<'_>) -> Result<()> {
    let (x, y) = (source(node, 0)?, Operand::of(&node.dst())?);
    if node.op() == Some(Op::Argmax) {
        let places = y.reshape(&[1, x.ne[1], x.ne[2], x.ne[3]]);
        return call.arg_max(&x, 0, &places);
    }
    let (x, placed) = (call.to(&x, ACL_FLOAT)?, call.place(&y, ACL_FLOAT)?);
    match node.op() {
        Some(Op::Sum) => {
            let all = call.dense(&x, ACL_FLOAT)?;
            call.sum(&all.reshape(&[all.n_elements()]), 0, &placed.flat(1))?;
        }
        Some(Op::Mean) => {
            let rows = call.ints(&[3])?;
            let (x, y) = (call.tensor(&x)?, call.tensor(&placed)?);
            run!(call, math.aclnnMean(x, rows, true, ACL_FLOAT, y))?;
        }
        Some(Op::Cumsum) => {
            let (x, y) = (call.tensor(&x)?, call.tensor(&placed)?);
            run!(call, math.aclnnCumsum(x, 3, ACL_FLOAT, y))?;
        }
        _ => call.sum(&x, 0, &placed)?,
    }
    call.store(&placed, &y)
}
