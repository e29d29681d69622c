//! fill: one number everywhere. arange: numbers at equal distances. diag: a row on a diagonal.

use super::check::{self, Answer, ensure};
use super::copy::movable;
use super::source;
use super::steps::has;
use crate::call::Call;
use crate::chip::Chip;
use crate::library::Cann;
use crate::operand::Operand;
use llmrt_plugin::abi::op::{ArangeParams, FillParams};
use llmrt_plugin::{DType, NodeView, Op, Reason, Result};

pub fn supports(cann: &Cann, chip: &Chip, node: &NodeView<'_>) -> Answer {
    has!(cann, math.aclnnInplaceFillScalar, math.aclnnArange, math.aclnnInplaceCopy)?;
    let (y, params) = (node.dst(), node.params_bytes());
    movable(chip, &y)?;
    let float = matches!(y.dtype(), Some(DType::F32 | DType::F16 | DType::BF16));
    match node.op() {
        Some(Op::Fill) => {
            check::params(FillParams::from_bytes(params))?;
            ensure(float, Reason::Type)
        }
        Some(Op::Arange) => {
            let p = check::params(ArangeParams::from_bytes(params))?;
            ensure(p.step != 0.0 && y.dtype() == Some(DType::F32), Reason::Param)?;
            ensure(y.ne()[1..] == [1, 1, 1], Reason::Shape)
        }
        _ => {
            let x = check::given(node, 0)?;
            movable(chip, &x)?;
            let [n, one, n2, n3] = x.ne();
            ensure(one == 1, Reason::Shape)?;
            check::result(node, x.dtype(), [n, n, n2, n3])
        }
    }
}

pub fn compute(call: &mut Call<'_>, node: &NodeView<'_>) -> Result<()> {
    let (y, params) = (Operand::of(&node.dst())?, node.params_bytes());
    match node.op() {
        Some(Op::Fill) => call.fill(&y, FillParams::from_bytes(params).unwrap_or_default().value),
        Some(Op::Arange) => {
            let p = ArangeParams::from_bytes(params).unwrap_or_default();
            call.count(p.start, p.step, &y.flat(1))
        }
        _ => {
            call.fill(&y, 0.0)?;
            let mut diagonal = y.without_dim(1).with_dim(1);
            diagonal.stride[0] = y.stride[0] + y.stride[1];
            call.copy(&source(node, 0)?, &diagonal)
        }
    }
}
