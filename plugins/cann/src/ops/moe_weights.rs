//! y = the router's weights of each token's chosen experts: softmax or sigmoid of the logits, picked by ids, divided by
//! their sum if the params set it, times a factor.

use super::check::{self, Answer, ensure};
use super::steps::{EXACT, has};
use super::{ids, missing, source, unary};
use crate::call::Call;
use crate::chip::Chip;
use crate::library::Cann;
use crate::operand::Operand;
use crate::sys::*;
use llmrt_plugin::abi::op::MoeWeightsParams;
use llmrt_plugin::{DType, NodeView, Op, Reason, Result};

const SOFT_MAX_THEN_PICK: u32 = 0;
const SIGMOID_THEN_PICK: u32 = 1;
const PICK_THEN_SOFT_MAX: u32 = 2;

/// The smallest normal F16, 2⁻¹⁴: what a sum is at least before it divides.
const SMALLEST_SUM: f32 = 6.103_515_6e-5;

pub fn supports(cann: &Cann, chip: &Chip, node: &NodeView<'_>) -> Answer {
    ids::can_read(cann)?;
    has!(cann, nn.aclnnSoftmax, nn.aclnnSigmoid, nn.aclnnGatherV2, math.aclnnReduceSum)?;
    has!(cann, math.aclnnClampMin, math.aclnnDiv, math.aclnnAdd, math.aclnnArange)?;
    let p = check::params(MoeWeightsParams::from_bytes(node.params_bytes()))?;
    ensure(p.gating <= PICK_THEN_SOFT_MAX && p.normalise <= 1, Reason::Param)?;
    let (logits, ids) = (check::floats(chip, node, 0)?, check::ints(node, 1)?);
    let ([n, tokens, ..], [used, ..]) = (logits.ne(), ids.ne());
    let flat = logits.ne()[2..] == [1, 1] && ids.ne() == [used, tokens, 1, 1];
    ensure(flat && n > 0 && n * tokens <= EXACT, Reason::Shape)?;
    check::result(node, Some(DType::F32), [1, used, tokens, 1])
}

pub fn compute(call: &mut Call<'_>, node: &NodeView<'_>) -> Result<()> {
    let p = MoeWeightsParams::from_bytes(node.params_bytes()).unwrap_or_default();
    let logits = source(node, 0)?.flat(2);
    let (n, tokens) = (logits.ne[0], logits.ne[1]);
    let ids = ids::of(call, &node.src(1).ok_or_else(missing)?, n)?;
    let (index, valid) = (ids.index.flat(2), ids.valid.flat(2));
    let logits = call.dense(&logits, ACL_FLOAT)?;
    let probs = match p.gating {
        PICK_THEN_SOFT_MAX => logits,
        gating => {
            let probs = call.temporary(ACL_FLOAT, &logits.ne)?;
            match gating {
                SOFT_MAX_THEN_PICK => call.soft_max(&logits, &probs)?,
                SIGMOID_THEN_PICK => unary::activate(call, Op::Sigmoid, &logits, &probs)?,
                _ => {}
            }
            probs
        }
    };
    // Element id of token t is at t · n + id.
    let (place, first) = (call.cast(&index, ACL_FLOAT)?, call.temporary(ACL_FLOAT, &[tokens])?);
    call.count(0.0, n as f32, &first)?;
    call.add(&place, &first.with_dim(0), &place)?;
    let place = call.cast(&place.reshape(&[place.n_elements()]), ACL_INT32)?;
    let weights = call.temporary(ACL_FLOAT, &index.ne)?;
    call.gather(&probs.reshape(&[n * tokens]), 0, &place, &weights.reshape(&place.ne))?;
    call.mul(&weights, &valid, &weights)?;
    if p.gating == PICK_THEN_SOFT_MAX {
        call.soft_max(&weights, &weights)?;
    }
    if p.normalise == 1 {
        let sum = call.temporary(ACL_FLOAT, &[1, tokens])?;
        call.sum(&weights, 0, &sum)?;
        call.at_least(&sum, SMALLEST_SUM, &sum)?;
        call.div(&weights, &sum, &weights)?;
    }
    let factor = if p.scale == 0.0 { 1.0 } else { p.scale };
    call.scale(&weights, factor, &Operand::of(&node.dst())?.without_dim(0).flat(2))
}
