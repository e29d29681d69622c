//! y = x, with a value where the index in one dim is among the indices. The indices stay on the card: each place of the
//! dim counts those that name it.

use super::check::{self, Answer, ensure};
use super::copy::movable;
use super::source;
use super::steps::has;
use crate::call::{Call, run};
use crate::chip::Chip;
use crate::library::Cann;
use crate::operand::Operand;
use crate::sys::*;
use llmrt_plugin::abi::op::IndexFillParams;
use llmrt_plugin::{DType, NodeView, Reason, Result};

/// Places times indices.
const MAX_PAIRS: usize = 1 << 24;

pub fn supports(cann: &Cann, chip: &Chip, node: &NodeView<'_>) -> Answer {
    has!(cann, math.aclnnInplaceMaskedFillScalar, math.aclnnGtScalar, math.aclnnReduceSum, math.aclnnAbs)?;
    has!(cann, math.aclnnArange, math.aclnnClamp, math.aclnnInplaceCopy, math.aclnnCast)?;
    has!(cann, math.aclnnSub, math.aclnnMuls, math.aclnnAdds)?;
    let p = check::params(IndexFillParams::from_bytes(node.params_bytes()))?;
    ensure(p.dim < 4, Reason::Param)?;
    let (x, indices) = (check::given(node, 0)?, check::ints(node, 1)?);
    movable(chip, &x)?;
    let float = matches!(x.dtype(), Some(DType::F32 | DType::F16 | DType::BF16));
    ensure(float, Reason::Type)?;
    let (n, places) = (indices.ne()[0], x.ne()[p.dim as usize]);
    ensure(indices.ne()[1..] == [1, 1, 1] && n.saturating_mul(places) <= MAX_PAIRS, Reason::Shape)?;
    check::result(node, x.dtype(), x.ne())
}

pub fn compute(call: &mut Call<'_>, node: &NodeView<'_>) -> Result<()> {
    let p = IndexFillParams::from_bytes(node.params_bytes()).unwrap_or_default();
    let (x, y, dim) = (source(node, 0)?, Operand::of(&node.dst())?, p.dim as usize);
    call.copy(&x, &y)?;
    let indices = source(node, 1)?.flat(1);
    if indices.n_elements() == 0 {
        return Ok(());
    }
    let (n, places) = (indices.ne[0], y.ne[dim]);
    let (filled_at, here) = (call.cast(&indices, ACL_FLOAT)?, call.temporary(ACL_FLOAT, &[places])?);
    call.count(0.0, 1.0, &here)?;
    let named = call.temporary(ACL_FLOAT, &[n, places])?;
    call.sub(&filled_at, &here.with_dim(0), &named)?;
    call.abs(&named, &named)?;
    call.clamp(&named, 0.0, 1.0, &named)?;
    call.affine(&named, -1.0, 1.0, &named)?;
    let (times, filled) = (call.temporary(ACL_FLOAT, &[1, places])?, call.temporary(ACL_BOOL, &[places])?);
    call.sum(&named, 0, &times)?;
    let (t, half, mask) = (call.tensor(&times.reshape(&[places]))?, call.float(0.5)?, call.tensor(&filled)?);
    run!(call, math.aclnnGtScalar(t, half, mask))?;
    let mut ne = vec![1; 4];
    ne[dim] = places;
    let (t, mask, value) = (call.tensor(&y)?, call.tensor(&filled.reshape(&ne))?, call.float(p.value)?);
    run!(call, math.aclnnInplaceMaskedFillScalar(t, mask, value))
}
