//! The largest number of each row.
//!
//! The library has it as the first of a top-k, which a first 910 computes on the card's CPU for F32 (topk.cpp of ops-math, 8.5):
//! slowly, and no plan can repeat it. Places of the largest numbers and what stands there are computed by the card itself
//! (argmax_v2.cpp and gather_v2.cpp, 9.1), and as exact.

use super::steps::{EXACT, has};
use crate::call::{Call, run};
use crate::chip::Family;
use crate::operand::Operand;
use crate::sys::*;
use llmrt_plugin::Result;

/// F32 [1, rows] from x, F32 [n, rows] without gaps.
pub fn largest(call: &mut Call<'_>, x: &Operand) -> Result<Operand> {
    let ne = [1, x.ne[1]];
    let y = call.temporary(ACL_FLOAT, &ne)?;
    let cann = &call.stream.runtime.cann;
    let has_places = has!(cann, math.aclnnArgMax, math.aclnnArange, math.aclnnAdd, nn.aclnnGatherV2).is_ok();
    let on_cpu = call.stream.chip.family == Family::A910;
    if on_cpu && has_places && x.n_elements() <= EXACT as i64 {
        call.scoped(|call| by_places(call, x, &y))?;
        return Ok(y);
    }
    let places = call.temporary(ACL_INT64, &ne)?;
    let (x, to, places) = (call.tensor(x)?, call.tensor(&y)?, call.tensor(&places)?);
    run!(call, math.aclnnTopk(x, 1, -1, true, true, to, places))?;
    Ok(y)
}

fn by_places(call: &mut Call<'_>, x: &Operand, y: &Operand) -> Result<()> {
    let (n, rows) = (x.ne[0], x.ne[1]);
    let places = call.temporary(ACL_INT32, &[1, rows])?;
    call.arg_max(x, 0, &places)?;
    let places = call.cast(&places.reshape(&[rows]), ACL_FLOAT)?;
    let starts = call.temporary(ACL_FLOAT, &[rows])?;
    call.count(0.0, n as f32, &starts)?;
    call.add(&places, &starts, &places)?;
    let index = call.cast(&places, ACL_INT32)?;
    call.gather(&x.reshape(&[n * rows]), 0, &index, &y.reshape(&[rows]))
}
