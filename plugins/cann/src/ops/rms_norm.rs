//! y = x · rsqrt(mean(x²) + eps) · w over rows; without a weight it is ones.

use super::check::{self, Answer, ensure};
use super::source;
use super::steps::has;
use crate::call::{Call, Key, run};
use crate::chip::Chip;
use crate::library::Cann;
use crate::operand::Operand;
use crate::sys::*;
use llmrt_plugin::abi::op::NormParams;
use llmrt_plugin::{DType, NodeView, Reason, Result};

/// Elements in 32 bytes of F32: the shortest row where the chip requires it.
const SHORTEST_ON_SOME: usize = 8;

pub fn supports(cann: &Cann, chip: &Chip, node: &NodeView<'_>) -> Answer {
    has!(cann, math.aclnnCast, math.aclnnInplaceFillScalar)?;
    if has!(cann, nn.aclnnRmsNorm).is_err() {
        has!(cann, math.aclnnMul, math.aclnnReduceSum, math.aclnnMuls, math.aclnnAdds, math.aclnnRsqrt)?;
    }
    check::params(NormParams::from_bytes(node.params_bytes()))?;
    let x = check::floats(chip, node, 0)?;
    ensure(chip.bf16 || x.ne()[0] >= SHORTEST_ON_SOME, Reason::Shape)?;
    if node.src(1).is_some() {
        let w = check::floats(chip, node, 1)?;
        ensure(w.ne() == [x.ne()[0], 1, 1, 1], Reason::Shape)?;
    }
    check::result(node, Some(DType::F32), x.ne())
}

pub fn compute(call: &mut Call<'_>, node: &NodeView<'_>) -> Result<()> {
    let eps = NormParams::from_bytes(node.params_bytes()).unwrap_or_default().eps;
    let (x, y) = (source(node, 0)?, Operand::of(&node.dst())?);
    let w = match node.src(1) {
        Some(w) => {
            let w = Operand::of(&w)?.flat(1);
            call.dense(&w, ACL_FLOAT)?
        }
        None => ones(call, x.ne[0])?,
    };
    rms_norm(call, &x, &w, eps, &y)
}

/// A row of ones.
fn ones(call: &mut Call<'_>, n: i64) -> Result<Operand> {
    let key = Key("ones", vec![], n.to_ne_bytes().to_vec());
    call.shared(key, ACL_FLOAT, &[n], |call, ones| call.fill(ones, 1.0))
}

fn rms_norm(call: &mut Call<'_>, x: &Operand, w: &Operand, eps: f32, y: &Operand) -> Result<()> {
    let x = call.to(x, ACL_FLOAT)?;
    // The library also writes 1 / root of each row.
    let mut ne = x.ne.clone();
    ne[0] = 1;
    let (placed, roots) = (call.place(y, ACL_FLOAT)?, call.temporary(ACL_FLOAT, &ne)?);
    if call.stream.runtime.cann.nn.aclnnRmsNorm.plan.is_some() {
        let (x, w, out) = (call.tensor(&x)?, call.tensor(w)?, call.tensor(&placed)?);
        let roots = call.tensor(&roots)?;
        run!(call, nn.aclnnRmsNorm(x, w, eps.into(), out, roots))?;
    } else {
        call.mul(&x, &x, &placed)?;
        call.sum(&placed, 0, &roots)?;
        call.affine(&roots, 1.0 / x.ne[0] as f32, eps, &roots)?;
        call.rsqrt(&roots, &roots)?;
        call.mul(&x, &roots, &placed)?;
        call.mul(&placed, w, &placed)?;
    }
    call.store(&placed, y)
}
