//! y [m, n] = Σₖ a [m, k] · b [n, k]; matrices of a broadcast over those of b in dims 2 and 3. Always in F32.

use super::check::{self, Answer, ensure};
use super::steps::has;
use super::{mul_mat, source};
use crate::call::Call;
use crate::chip::Chip;
use crate::library::Cann;
use crate::operand::Operand;
use crate::sys::*;
use llmrt_plugin::{DType, NodeView, Reason, Result};

pub fn supports(cann: &Cann, chip: &Chip, node: &NodeView<'_>) -> Answer {
    has!(cann, nn.aclnnMatmul, math.aclnnCast, math.aclnnInplaceCopy)?;
    let (a, b) = (check::floats(chip, node, 0)?, check::floats(chip, node, 1)?);
    let ([m, k, a2, a3], [n, k_b, b2, b3]) = (a.ne(), b.ne());
    let fits = k == k_b && k > 0 && a2 > 0 && a3 > 0 && b2 % a2.max(1) == 0 && b3 % a3.max(1) == 0;
    ensure(fits, Reason::Shape)?;
    check::result(node, Some(DType::F32), [m, n, b2, b3])
}

pub fn compute(call: &mut Call<'_>, node: &NodeView<'_>) -> Result<()> {
    let turned = |t: Operand| t.permute(&[1, 0, 2, 3]);
    let (a, b) = (turned(source(node, 0)?), turned(source(node, 1)?));
    let (a, b) = (call.to(&a, ACL_FLOAT)?, call.to(&b, ACL_FLOAT)?);
    mul_mat::batches(call, &a, &b, &Operand::of(&node.dst())?)
}
