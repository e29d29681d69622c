//! x with a·x = b, a lower triangular: row after row, x_i = (b_i - Σ_{t<i} a_it x_t) / a_ii.
//! Threads share the columns of x; where there are few, whole matrices.

use super::check::{self, Answer, ensure};
use super::output::Tile;
use super::{Args, Output, Worker};
use crate::simd::{Simd, dispatch};
use crate::tensor::Tensor;
use llmrt_plugin::{DType, NodeView, Reason};

/// Columns that a thread solves together.
const STRIP: usize = 64;

pub fn supports(node: &NodeView<'_>) -> Answer {
    let (a, b) = (check::floats(node, 0)?.ne(), check::floats(node, 1)?.ne());
    ensure(a == [b[1], b[1], b[2], b[3]], Reason::Shape)?;
    check::result(node, DType::F32, b)
}

pub fn compute(w: &mut Worker<'_>, a: &Args, out: Output<'_>) {
    out.tiles([STRIP, a.dst.ne[1], 1, 1]).for_each(|mut x| solve(w.isa, a.arg(0), a.arg(1), &mut x));
}

dispatch! {
    fn solve(a: &Tensor, b: &Tensor, x: &mut Tile<'_>) = solve_with;
}

#[inline(always)]
fn solve_with<S: Simd>(_: S, a: &Tensor, b: &Tensor, x: &mut Tile<'_>) {
    let [columns, rows, i2, i3] = x.dims();
    let (i2, i3) = (i2.start, i3.start);
    let mut row = [0.0; STRIP];
    let row = &mut row[..columns.len()];
    for i in rows {
        let factors = a.row([i, i2, i3]);
        row.copy_from_slice(&b.row([i, i2, i3])[columns.clone()]);
        for (t, factor) in factors[..i].iter().enumerate() {
            row.iter_mut().zip(&*x.row([t, i2, i3])).for_each(|(v, x)| *v -= factor * x);
        }
        x.row([i, i2, i3]).iter_mut().zip(&*row).for_each(|(x, v)| *x = v / factors[i]);
    }
}
