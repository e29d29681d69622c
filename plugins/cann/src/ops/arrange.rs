//! Elements in other places: concat, repeat, repeat_interleave, roll. Any plain dtype.

use super::check::{self, Answer, ensure};
use super::copy::movable;
use super::source;
use super::steps::has;
use crate::call::{Call, run};
use crate::chip::Chip;
use crate::library::Cann;
use crate::operand::Operand;
use llmrt_plugin::abi::op::{ConcatParams, RepeatInterleaveParams, RollParams, ShapeParams};
use llmrt_plugin::{NodeView, Op, Reason, Result};

pub fn supports(cann: &Cann, chip: &Chip, node: &NodeView<'_>) -> Answer {
    has!(cann, math.aclnnInplaceCopy)?;
    let (x, y, params) = (check::given(node, 0)?, node.dst(), node.params_bytes());
    movable(chip, &x)?;
    let mut ne = x.ne();
    match node.op() {
        Some(Op::Concat) => {
            has!(cann, math.aclnnCat)?;
            let dim = check::params(ConcatParams::from_bytes(params))?.dim as usize;
            let b = check::given(node, 1)?;
            movable(chip, &b)?;
            ensure(dim < 4 && b.dtype() == x.dtype(), Reason::Param)?;
            ensure((0..4).all(|d| d == dim || b.ne()[d] == ne[d]), Reason::Shape)?;
            ne[dim] += b.ne()[dim];
        }
        Some(Op::Repeat) => {
            has!(cann, math.aclnnRepeat)?;
            check::params(ShapeParams::from_bytes(params))?;
            let repeated = y.ne();
            ensure(ne.iter().zip(repeated).all(|(n, repeated)| *n > 0 && repeated % n == 0), Reason::Shape)?;
            ne = repeated;
        }
        Some(Op::RepeatInterleave) => {
            has!(cann, nn.aclnnRepeatInterleaveIntWithDim)?;
            let p = check::params(RepeatInterleaveParams::from_bytes(params))?;
            let (dim, n) = (p.dim as usize, p.n as usize);
            ensure(dim < 4 && n > 0, Reason::Param)?;
            ne[dim] = ne[dim].saturating_mul(n);
        }
        _ => {
            has!(cann, math.aclnnRoll)?;
            check::params(RollParams::from_bytes(params)).map(|_| ())?;
        }
    }
    check::result(node, x.dtype(), ne)
}

pub fn compute(call: &mut Call<'_>, node: &NodeView<'_>) -> Result<()> {
    let (x, y, params) = (source(node, 0)?, Operand::of(&node.dst())?, node.params_bytes());
    let placed = call.place(&y, x.dtype)?;
    match node.op() {
        Some(Op::Concat) => {
            let dim = 3 - i64::from(ConcatParams::from_bytes(params).unwrap_or_default().dim);
            let all: Vec<Operand> =
                [x, source(node, 1)?].into_iter().filter(|t| t.n_elements() > 0).collect();
            let (all, y) = (call.tensors(&all)?, call.tensor(&placed)?);
            run!(call, math.aclnnCat(all, dim, y))?;
        }
        Some(Op::Repeat) => {
            let times: Vec<i64> = placed.ne.iter().zip(&x.ne).rev().map(|(n, of)| n / of).collect();
            let (times, x, y) = (call.ints(&times)?, call.tensor(&x)?, call.tensor(&placed)?);
            run!(call, math.aclnnRepeat(x, times, y))?;
        }
        Some(Op::RepeatInterleave) => {
            let p = RepeatInterleaveParams::from_bytes(params).unwrap_or_default();
            let (n, dim, size) = (p.n.into(), 3 - i64::from(p.dim), placed.ne[p.dim as usize]);
            let (x, y) = (call.tensor(&x)?, call.tensor(&placed)?);
            run!(call, nn.aclnnRepeatInterleaveIntWithDim(x, n, dim, size, y))?;
        }
        _ => {
            let p = RollParams::from_bytes(params).unwrap_or_default();
            let (shifts, dims) = shifts([p.shift0, p.shift1, p.shift2, p.shift3], &x.ne);
            if dims.is_empty() {
                return call.copy(&x, &y);
            }
            let (shifts, dims) = (call.ints(&shifts)?, call.ints(&dims)?);
            let (x, y) = (call.tensor(&x)?, call.tensor(&placed)?);
            run!(call, math.aclnnRoll(x, shifts, dims, y))?;
        }
    }
    call.store(&placed, &y)
}

/// Shifts within their dims and the library's numbers of the dims, of those that move.
fn shifts(by: [i32; 4], ne: &[i64]) -> (Vec<i64>, Vec<i64>) {
    let within = |d: usize| i64::from(by[d]).rem_euclid(ne[d]);
    (0..4).filter(|&d| within(d) != 0).map(|d| (within(d), 3 - d as i64)).unzip()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dims_are_counted_from_the_outermost_and_shifts_stay_within_them() {
        assert_eq!(shifts([-1, 0, 7, 5], &[4, 3, 2, 5]), (vec![3, 1], vec![3, 1]));
        assert_eq!(shifts([8, 0, 0, 0], &[4, 3, 2, 5]), (vec![], vec![]));
    }
}
