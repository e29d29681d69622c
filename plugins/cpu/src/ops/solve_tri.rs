//! x with a·x = b, a lower triangular: row after row, x_i = (b_i - Σ_{t<i} a_it x_t) / a_ii.
//! Threads share the columns of x; where there are few, whole matrices.

use super::check::{self, Answer, ensure};
use super::{Args, Worker};
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

pub fn compute(w: &mut Worker<'_>, a: &Args) {
    let [k, _, n2, n3] = a.dst.ne;
    let strips = k.div_ceil(STRIP);
    for unit in w.share(strips * n2 * n3) {
        let (strip, matrix) = (unit % strips * STRIP, unit / strips);
        let columns = strip..(strip + STRIP).min(k);
        solve(w.isa, a.arg(0), a.arg(1), &a.dst, [matrix % n2, matrix / n2], columns);
    }
}

dispatch! {
    fn solve(
        a: &Tensor,
        b: &Tensor,
        x: &Tensor,
        matrix: [usize; 2],
        columns: std::ops::Range<usize>,
    ) = solve_with;
}

#[inline(always)]
fn solve_with<S: Simd>(
    _: S,
    a: &Tensor,
    b: &Tensor,
    x: &Tensor,
    [i2, i3]: [usize; 2],
    columns: std::ops::Range<usize>,
) {
    let mut row = [0.0; STRIP];
    let row = &mut row[..columns.len()];
    for i in 0..x.ne[1] {
        let factors = a.row([i, i2, i3]);
        row.copy_from_slice(&b.row([i, i2, i3])[columns.clone()]);
        for (t, factor) in factors[..i].iter().enumerate() {
            // SAFETY: these columns of this matrix are this thread's, and nothing else of them is borrowed.
            let solved = unsafe { x.part_mut([t, i2, i3], columns.clone()) };
            row.iter_mut().zip(&*solved).for_each(|(v, x)| *v -= factor * x);
        }
        // SAFETY: as above.
        let to = unsafe { x.part_mut([i, i2, i3], columns.clone()) };
        to.iter_mut().zip(&*row).for_each(|(x, v)| *x = v / factors[i]);
    }
}
