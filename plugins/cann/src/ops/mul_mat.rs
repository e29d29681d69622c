//! y[i, j] = Σₖ w[k, i] · x[k, j]; matrices of w broadcast over those of x in dims 2 and 3.
//!
//! F32 stays F32. F16 and sealed weights multiply rows rounded to F16, as the vendor's units do; BF16 weights multiply rows
//! of two BF16 numbers each; blocks of the file become F32, piece by piece.

use super::check::{self, Answer, ensure};
use super::weights::{self, Weights};
use super::{missing, source};
use crate::call::Call;
use crate::chip::Chip;
use crate::library::Cann;
use crate::operand::Operand;
use crate::sys::*;
use llmrt_plugin::{DType, NodeView, Reason, Result};

pub fn supports(cann: &Cann, chip: &Chip, node: &NodeView<'_>) -> Answer {
    let (w, x) = (check::given(node, 0)?, check::floats(chip, node, 1)?);
    weights::supports(cann, chip, &w)?;
    let batches = w.ne()[2].saturating_mul(w.ne()[3]);
    ensure(!weights::is_quantised(&w) || batches <= weights::MAX_BATCHES, Reason::Shape)?;
    let fits = |d: usize| w.ne()[d] > 0 && x.ne()[d].is_multiple_of(w.ne()[d]);
    ensure(w.ne()[0] > 0 && w.ne()[0] == x.ne()[0] && fits(2) && fits(3), Reason::Shape)?;
    check::result(node, Some(DType::F32), [w.ne()[1], x.ne()[1], x.ne()[2], x.ne()[3]])
}

pub fn compute(call: &mut Call<'_>, node: &NodeView<'_>) -> Result<()> {
    let t = node.src(0).ok_or_else(missing)?;
    let (x, y) = (source(node, 1)?, Operand::of(&node.dst())?);
    let w = match Weights::of(&t)? {
        Weights::Plain(w) if w.ne[2..] != [1, 1] => return batches(call, &w, &x, &y),
        Weights::Plain(w) => Weights::Plain(w.flat(2)),
        quantised => quantised,
    };
    let [m, n2, n3] = [1, 2, 3].map(|d| t.ne()[d] as i64);
    let (r2, r3) = (x.ne[2] / n2, x.ne[3] / n3);
    for (b, c) in (0..n3).flat_map(|c| (0..n2).map(move |b| (b, c))) {
        let of = |t: &Operand| t.slice(2, b * r2, r2).slice(3, c * r3, r3);
        call.scoped(|call| one(call, &w.rows((c * n2 + b) * m, m), &of(&x), &of(&y)))?;
    }
    Ok(())
}

/// One matrix for all rows of x.
fn one(call: &mut Call<'_>, w: &Weights, x: &Operand, y: &Operand) -> Result<()> {
    if x.ne[2..] == [1, 1] {
        return w.times(call, &x.flat(2), &y.flat(2));
    }
    let (x, placed) = (call.dense(x, x.dtype)?, call.place(y, y.dtype)?);
    let rows = |t: &Operand| t.reshape(&[t.ne[0], t.ne[1..].iter().product()]);
    w.times(call, &rows(&x), &rows(&placed))?;
    call.store(&placed, y)
}

/// Matrices that broadcast: where x has r times as many in a dim, the dim becomes two, [r] and that of w.
pub fn batches(call: &mut Call<'_>, w: &Operand, x: &Operand, y: &Operand) -> Result<()> {
    let x = call.to(x, ACL_FLOAT)?;
    let placed = call.place(y, ACL_FLOAT)?;
    let [w, x, out] = pairs(w, &x, &placed);
    call.product(&w, &x, &out)?;
    call.store(&placed, y)
}

fn pairs(w: &Operand, x: &Operand, y: &Operand) -> [Operand; 3] {
    let (mut w, mut x, mut y) = (w.clone(), x.clone(), y.clone());
    for dim in [3, 2] {
        let r = x.ne[dim] / w.ne[dim].max(1);
        if r > 1 && w.ne[dim] > 1 {
            (x, y, w) = (x.split(dim, r), y.split(dim, r), w.with_dim(dim));
        }
    }
    [w, x, y]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operand(ne: &[i64]) -> Operand {
        Operand::contiguous(ACL_FLOAT, ne, std::ptr::null_mut())
    }

    #[test]
    fn matrices_broadcast_in_groups_of_neighbours() {
        for (w, x, expected) in [
            ([7, 5, 3, 2], [7, 4, 6, 2], [vec![7, 5, 1, 3, 2], vec![7, 4, 2, 3, 2]]),
            ([7, 5, 2, 3], [7, 4, 4, 9], [vec![7, 5, 1, 2, 1, 3], vec![7, 4, 2, 2, 3, 3]]),
            ([7, 5, 1, 2], [7, 4, 3, 2], [vec![7, 5, 1, 2], vec![7, 4, 3, 2]]),
        ] {
            let y = operand(&[5, x[1], x[2], x[3]]);
            let [w, x, y] = pairs(&operand(&w), &operand(&x), &y);
            assert_eq!([w.ne, x.ne.clone()], expected);
            assert_eq!(y.ne[2..], x.ne[2..]);
        }
    }
}
