//! acc: a with b added to a block of it. set: a with a block of it replaced by b.

use super::check::{self, Answer, ensure};
use super::source;
use super::steps::has;
use crate::call::Call;
use crate::chip::Chip;
use crate::library::Cann;
use crate::operand::Operand;
use crate::sys::*;
use llmrt_plugin::abi::op::BlockParams;
use llmrt_plugin::{NodeView, Op, Reason, Result};

pub fn supports(cann: &Cann, chip: &Chip, node: &NodeView<'_>) -> Answer {
    has!(cann, math.aclnnInplaceCopy, math.aclnnAdd, math.aclnnCast)?;
    let starts = starts(check::params(BlockParams::from_bytes(node.params_bytes()))?);
    let (a, b) = (check::floats(chip, node, 0)?, check::floats(chip, node, 1)?);
    let fits = (0..4).all(|d| starts[d] as usize + b.ne()[d] <= a.ne()[d]);
    ensure(fits, Reason::Shape)?;
    check::result(node, a.dtype(), a.ne())
}

fn starts(p: BlockParams) -> [i64; 4] {
    [p.start0, p.start1, p.start2, p.start3].map(i64::from)
}

pub fn compute(call: &mut Call<'_>, node: &NodeView<'_>) -> Result<()> {
    let starts = starts(BlockParams::from_bytes(node.params_bytes()).unwrap_or_default());
    let (a, b, y) = (source(node, 0)?, source(node, 1)?, Operand::of(&node.dst())?);
    if (a.base, a.offset, &a.stride) != (y.base, y.offset, &y.stride) {
        call.copy(&a, &y)?;
    }
    if b.n_elements() == 0 {
        return Ok(());
    }
    let block = (0..4).fold(y, |t, d| t.slice(d, starts[d], b.ne[d]));
    match node.op() {
        Some(Op::Set) => call.copy(&b, &block),
        // Added in F32 and rounded once.
        _ => {
            let (sum, b) = (call.to(&block, ACL_FLOAT)?, call.to(&b, ACL_FLOAT)?);
            call.add(&sum, &b, &sum)?;
            call.store(&sum, &block)
        }
    }
}
