//! Rotary position embedding: pairs of each head's elements turn by angles that follow from positions.
//!
//! Sine and cosine are computed from the positions on the card, once per graph for all layers ([`super::rope_table`]).
//! Heads that turn as a whole go to the library's operator where its limits allow, others are turned by products of
//! their halves.

use super::check::{self, Answer, ensure};
use super::rope_table::{NEOX, NORMAL, VISION, has_sections, n_pairs, sections, table};
use super::source;
use super::steps::has;
use crate::call::{Call, run};
use crate::chip::Chip;
use crate::library::Cann;
use crate::operand::Operand;
use crate::sys::*;
use llmrt_plugin::abi::op::RopeParams;
use llmrt_plugin::{NodeView, Reason, Result};

pub fn supports(cann: &Cann, chip: &Chip, node: &NodeView<'_>) -> Answer {
    has!(cann, math.aclnnArange, math.aclnnMuls, math.aclnnPowScalarTensor, math.aclnnMul, math.aclnnDiv)?;
    has!(cann, math.aclnnSin, math.aclnnCos, math.aclnnAdd, math.aclnnSub, math.aclnnInplaceCopy)?;
    has!(cann, math.aclnnAdds, math.aclnnClamp, math.aclnnCast)?;
    let p = check::params(RopeParams::from_bytes(node.params_bytes()))?;
    ensure((p.mode == NORMAL || p.mode == NEOX || has_sections(&p)) && p.back <= 1, Reason::Param)?;
    let x = check::floats(chip, node, 0)?;
    let (n_dims, head_dim) = (p.n_dims as usize, x.ne()[0]);
    let turned = (p.offset as usize).saturating_add(2 * n_pairs(&p) as usize);
    ensure(n_dims > 0 && n_dims.is_multiple_of(2) && turned <= head_dim, Reason::Shape)?;
    ensure(p.mode != VISION || (p.offset == 0 && turned == head_dim), Reason::Shape)?;
    let [s0, s1, s2, s3] = sections(&p);
    let some = s0 + s1 + s2 > 0 && s0 + s1 + s2 + s3 <= head_dim as i64;
    ensure(!has_sections(&p) || some, Reason::Param)?;
    let n_positions = x.ne()[2] * if has_sections(&p) { 4 } else { 1 };
    ensure(check::ints(node, 1)?.ne() == [n_positions, 1, 1, 1], Reason::Shape)?;
    if node.src(2).is_some() {
        let factors = check::floats(chip, node, 2)?;
        ensure(factors.ne()[0] >= n_pairs(&p) as usize, Reason::Shape)?;
    }
    check::float_result(chip, node, x.ne())
}

/// Computed in F32 and rounded once.
pub fn compute(call: &mut Call<'_>, node: &NodeView<'_>) -> Result<()> {
    let p = RopeParams::from_bytes(node.params_bytes()).unwrap_or_default();
    let (x, y) = (source(node, 0)?, Operand::of(&node.dst())?);
    if let Some(mode) = library_mode(call, &p, &x) {
        let (cos, sin) = (table(call, node, &p, "cos", true)?, table(call, node, &p, "sin", true)?);
        let (x, placed) = (call.to(&x, ACL_FLOAT)?, call.place(&y, ACL_FLOAT)?);
        let (x, out) = (call.tensor(&x)?, call.tensor(&placed)?);
        let (cos, sin) = (call.tensor(&cos.with_dim(3))?, call.tensor(&sin.with_dim(3))?);
        run!(call, transformer.aclnnRotaryPositionEmbedding(x, cos, sin, mode, out))?;
        return call.store(&placed, &y);
    }
    let (cos, sin) = (table(call, node, &p, "cos", false)?, table(call, node, &p, "sin", false)?);
    turn(call, &p, &x, [&cos.with_dim(3), &sin.with_dim(3)], &y)
}

/// The library's number of the mode, if its operator takes these heads: [head_dim, n_heads, n_tokens, n_seqs].
fn library_mode(call: &Call<'_>, p: &RopeParams, x: &Operand) -> Option<i64> {
    let chip = &call.stream.chip;
    let has = call.stream.runtime.cann.transformer.aclnnRotaryPositionEmbedding.plan.is_some();
    let (d, heads) = (x.ne[0], x.ne[1] * x.ne[3]);
    let in_halves = p.mode != NORMAL;
    let small = chip.bf16 || (in_halves && d <= 128 && d % 32 == 0);
    let whole = 2 * n_pairs(p) == d;
    (has && whole && small && d < 896 && heads < 1000).then_some(if in_halves { 0 } else { 1 })
}

/// The elements that turn, as halves of pairs.
pub fn halves(p: &RopeParams, t: &Operand) -> (Operand, Operand) {
    let half = n_pairs(p);
    match p.mode {
        NORMAL => (t.slice(0, 0, 2 * half).every(0, 0, 2), t.slice(0, 0, 2 * half).every(0, 1, 2)),
        _ => (t.slice(0, 0, half), t.slice(0, half, half)),
    }
}

/// Halves a, b become a · cos - b · sin, a · sin + b · cos; elements beside the turned ones are copied.
fn turn(
    call: &mut Call<'_>,
    p: &RopeParams,
    x: &Operand,
    [cos, sin]: [&Operand; 2],
    y: &Operand,
) -> Result<()> {
    let (x, placed) = (call.to(x, ACL_FLOAT)?, call.place(y, ACL_FLOAT)?);
    let (start, n) = (i64::from(p.offset), 2 * n_pairs(p));
    let turned = |t: &Operand| halves(p, &t.slice(0, start, n));
    let ((a, b), (to_a, to_b)) = (turned(&x), turned(&placed));
    let (one, other) = (call.temporary(ACL_FLOAT, &a.ne)?, call.temporary(ACL_FLOAT, &a.ne)?);
    call.mul(&a, cos, &one)?;
    call.mul(&b, sin, &other)?;
    call.sub(&one, &other, &to_a)?;
    call.mul(&a, sin, &one)?;
    call.mul(&b, cos, &other)?;
    call.add(&one, &other, &to_b)?;
    for (from, n) in [(0, start), (start + n, x.ne[0] - start - n)] {
        if n > 0 {
            call.copy(&x.slice(0, from, n), &placed.slice(0, from, n))?;
        }
    }
    call.store(&placed, y)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_neighbours_or_halves_apart() {
        let t = Operand::contiguous(ACL_FLOAT, &[8, 2, 3], std::ptr::null_mut());
        let p = |mode| RopeParams { n_dims: 6, mode, ..Default::default() };
        let (a, b) = halves(&p(NORMAL), &t);
        assert_eq!((a.ne[0], a.stride[0], a.offset, b.ne[0], b.offset), (3, 2, 0, 3, 1));
        let (a, b) = halves(&p(NEOX), &t);
        assert_eq!((a.ne[0], a.stride[0], a.offset, b.ne[0], b.offset), (3, 1, 0, 3, 3));
    }
}
