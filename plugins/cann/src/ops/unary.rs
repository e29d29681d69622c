//! y = f(x), elementwise.

use super::check::{self, Answer};
use crate::call::{Call, run};
use crate::chip::Chip;
use crate::library::Cann;
use crate::operand::Operand;
use llmrt_plugin::{Error, NodeView, Op, Result};

pub fn supports(_cann: &Cann, chip: &Chip, node: &NodeView<'_>) -> Answer {
    let x = check::floats(chip, node, 0)?;
    check::result(node, x.dtype(), x.ne())
}

pub fn compute(call: &mut Call<'_>, node: &NodeView<'_>) -> Result<()> {
    let x = node.src(0).ok_or_else(|| Error::invalid("a source is missing"))?;
    let (x, y) = (call.tensor(&Operand::of(&x)?)?, call.tensor(&Operand::of(&node.dst())?)?);
    match node.op() {
        Some(Op::Silu) => run!(call, nn.aclnnSilu(x, y)),
        Some(Op::Relu) => run!(call, nn.aclnnRelu(x, y)),
        Some(Op::Tanh) => run!(call, math.aclnnTanh(x, y)),
        Some(Op::Sigmoid) => run!(call, nn.aclnnSigmoid(x, y)),
        // The tanh form is number 1, the error function 0.
        Some(Op::Gelu) => run!(call, nn.aclnnGeluV2(x, 1, y)),
        Some(Op::GeluErf) => run!(call, nn.aclnnGeluV2(x, 0, y)),
        // x · sigmoid(1.702 x)
        _ => run!(call, nn.aclnnFastGelu(x, y)),
    }
}
