//! Elements by place: pad with a value, mirrored or circular, and upscale to the nearest. Places are counted on the card.

use super::check::{self, Answer, ensure};
use super::copy::movable;
use super::source;
use super::steps::has;
use crate::call::{Call, run};
use crate::chip::Chip;
use crate::library::Cann;
use crate::operand::Operand;
use crate::sys::*;
use llmrt_plugin::abi::op::{PadParams, UpscaleParams};
use llmrt_plugin::{DType, NodeView, Op, Reason, Result};

const CONSTANT: u32 = 0;
const MIRRORED: u32 = 1;

pub fn supports(cann: &Cann, chip: &Chip, node: &NodeView<'_>) -> Answer {
    has!(cann, math.aclnnConstantPadNd, math.aclnnInplaceCopy, math.aclnnCast, math.aclnnArange)?;
    has!(cann, math.aclnnAbs, math.aclnnFloor, math.aclnnAdd, nn.aclnnGatherV2)?;
    has!(cann, math.aclnnMuls, math.aclnnAdds)?;
    let (x, y) = (check::given(node, 0)?, node.dst());
    movable(chip, &x)?;
    ensure(x.n_elements() > 0, Reason::Shape)?;
    if node.op() == Some(Op::Pad) {
        let p = check::params(PadParams::from_bytes(node.params_bytes()))?;
        // Numbers that are no floats lose the value's fraction in their own way.
        let float = matches!(x.dtype(), Some(DType::F32 | DType::F16 | DType::BF16));
        ensure(p.mode <= 2 && (p.mode != CONSTANT || float || p.value == 0.0), Reason::Param)?;
        let (before, after) = amounts(&p);
        let ne = std::array::from_fn(|d| before[d] as usize + x.ne()[d] + after[d] as usize);
        let most = |d: usize| x.ne()[d] as i64 - 1;
        let fits = p.mode != MIRRORED || (0..4).all(|d| before[d] <= most(d) && after[d] <= most(d));
        ensure(fits, Reason::Param)?;
        return check::result(node, x.dtype(), ne);
    }
    let p = check::params(UpscaleParams::from_bytes(node.params_bytes()))?;
    ensure(p.mode == 0 && p.align_corners == 0, Reason::Param)?;
    ensure(y.ne().iter().zip(x.ne()).all(|(n, of)| n % of == 0), Reason::Shape)?;
    check::result(node, x.dtype(), y.ne())
}

fn amounts(p: &PadParams) -> ([i64; 4], [i64; 4]) {
    let before = [p.before0, p.before1, p.before2, p.before3].map(i64::from);
    (before, [p.after0, p.after1, p.after2, p.after3].map(i64::from))
}

pub fn compute(call: &mut Call<'_>, node: &NodeView<'_>) -> Result<()> {
    let (x, y) = (source(node, 0)?, Operand::of(&node.dst())?);
    if node.op() == Some(Op::Upscale) {
        return upscale(call, &x, &y);
    }
    let p = PadParams::from_bytes(node.params_bytes()).unwrap_or_default();
    let (before, after) = amounts(&p);
    if p.mode == CONSTANT {
        let placed = call.place(&y, x.dtype)?;
        let pads: Vec<i64> = before.iter().zip(&after).flat_map(|(b, a)| [*b, *a]).collect();
        let (pads, value) = (call.ints(&pads)?, call.float(p.value)?);
        let (x, out) = (call.tensor(&x)?, call.tensor(&placed)?);
        run!(call, math.aclnnConstantPadNd(x, pads, value, out))?;
        return call.store(&placed, &y);
    }
    let mut all = x;
    for d in (0..4).filter(|&d| before[d] + after[d] > 0) {
        let n = all.ne[d] as f32;
        let place = call.temporary(ACL_FLOAT, &[y.ne[d]])?;
        call.count(-before[d] as f32, 1.0, &place)?;
        match p.mode {
            // n - 1 - |n - 1 - |i||
            MIRRORED => {
                for _ in 0..2 {
                    call.abs(&place, &place)?;
                    call.affine(&place, -1.0, n - 1.0, &place)?;
                }
            }
            // i - n · floor((i + ½) / n)
            _ => {
                let laps = call.temporary(ACL_FLOAT, &place.ne)?;
                call.affine(&place, 1.0 / n, 0.5 / n, &laps)?;
                call.floor(&laps, &laps)?;
                call.scale(&laps, -n, &laps)?;
                call.add(&place, &laps, &place)?;
            }
        }
        let place = call.cast(&place, ACL_INT32)?;
        all = call.picked(&all, d, &place)?;
    }
    call.copy(&all, &y)
}

/// Each dim a whole number of times as long.
fn upscale(call: &mut Call<'_>, x: &Operand, y: &Operand) -> Result<()> {
    let cv = call.stream.runtime.cann.cv.aclnnUpsampleNearest2d;
    let float = matches!(x.dtype, ACL_FLOAT | ACL_FLOAT16 | ACL_BF16);
    if cv.plan.is_some() && float && x.ne[2..] == y.ne[2..] {
        let (x, placed) = (call.dense(x, x.dtype)?, call.place(y, y.dtype)?);
        let size = call.ints(&[y.ne[1], y.ne[0]])?;
        let (x, out) = (call.image(&x)?, call.image(&placed)?);
        run!(call, cv.aclnnUpsampleNearest2d(x, size, out))?;
        return call.store(&placed, y);
    }
    // Every element over a block: dims of y in two, of which x has the outer.
    let (mut from, mut to) = (x.clone(), y.clone());
    for d in (0..4).rev().filter(|&d| x.ne[d] != y.ne[d]) {
        (from, to) = (from.with_dim(d), to.split(d, y.ne[d] / x.ne[d]));
    }
    call.copy(&from, &to)
}
