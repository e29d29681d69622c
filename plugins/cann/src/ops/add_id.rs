//! y = a [n, n_used, n_tokens] plus the rows of b [n, n_expert] that ids [n_used, n_tokens] name; ids outside add
//! nothing.

use super::check::{self, Answer, ensure};
use super::steps::{EXACT, has};
use super::{ids, missing, source};
use crate::call::Call;
use crate::chip::Chip;
use crate::library::Cann;
use crate::operand::Operand;
use crate::sys::*;
use llmrt_plugin::{NodeView, Reason, Result};

pub fn supports(cann: &Cann, chip: &Chip, node: &NodeView<'_>) -> Answer {
    ids::can_read(cann)?;
    has!(cann, nn.aclnnGatherV2, math.aclnnAdd, math.aclnnInplaceCopy)?;
    let (a, b, ids) = (check::floats(chip, node, 0)?, check::floats(chip, node, 1)?, check::ints(node, 2)?);
    let [n, used, tokens, n3] = a.ne();
    ensure(n3 == 1 && b.ne()[0] == n && b.ne()[2..] == [1, 1] && b.ne()[1] <= EXACT, Reason::Shape)?;
    ensure(b.ne()[1] > 0 && ids.ne() == [used, tokens, 1, 1], Reason::Shape)?;
    check::float_result(chip, node, a.ne())
}

pub fn compute(call: &mut Call<'_>, node: &NodeView<'_>) -> Result<()> {
    let b = source(node, 1)?.flat(2);
    let ids = ids::of(call, &node.src(2).ok_or_else(missing)?, b.ne[1])?;
    let (a, y) = (source(node, 0)?.flat(3), Operand::of(&node.dst())?.flat(3));
    let index = ids.index.reshape(&[ids.index.n_elements()]);
    let rows = call.picked(&b, 1, &index)?.reshape(&a.ne);
    let (rows, a, placed) = (call.to(&rows, ACL_FLOAT)?, call.to(&a, ACL_FLOAT)?, call.place(&y, ACL_FLOAT)?);
    call.mul(&rows, &ids.valid.flat(2).with_dim(0), &placed)?;
    call.add(&placed, &a, &placed)?;
    call.store(&placed, &y)
}
