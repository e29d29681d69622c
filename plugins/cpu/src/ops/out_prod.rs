//! y[i, j] = Σₖ a[i, k] · b[j, k]; matrix i of b uses matrix i / (n_b / n_a) of a in dims 2 and 3.
//!
//! A unit of work is a few rows of y, or pieces of them: row k of a is read once for all of them. Sums are in the order
//! of k.

use super::check::{self, Answer, ensure};
use super::{Args, Output, Worker, rows};
use crate::simd::{LANES, Simd, dispatch};
use llmrt_plugin::{DType, NodeView, Reason};

/// Rows of y in a unit.
const ROWS: usize = 8;
/// Elements of these rows in a unit; whole blocks of every dtype.
const PIECE: usize = 1024;

pub fn supports(node: &NodeView<'_>) -> Answer {
    let (a, b) = (check::matrix(node, 0)?.ne(), check::numbers(node, 1)?.ne());
    ensure(a[1] == b[1] && b[2].is_multiple_of(a[2]) && b[3].is_multiple_of(a[3]), Reason::Shape)?;
    check::result(node, DType::F32, [a[0], b[0], b[2], b[3]])
}

pub fn compute(w: &mut Worker<'_>, args: &Args, out: Output<'_>) {
    let (a, b) = (args.arg(0), args.arg(1));
    let (r2, r3) = (b.ne[2] / a.ne[2], b.ne[3] / a.ne[3]);
    for mut y in out.take_tiles([PIECE, ROWS, 1, 1], 0) {
        let [elems, rows, i2, i3] = y.dims();
        let (i2, i3) = (i2.start, i3.start);
        rows.clone().for_each(|j| y.row([j, i2, i3]).fill(0.0));
        let mut room = [0.0; ROWS];
        for k in 0..b.ne[1] {
            let a_room = w.scratch.rows.take(elems.len());
            let a_row = rows::read(w.isa, a, [k, i2 / r2, i3 / r3], elems.clone(), a_room);
            let factors = rows::read(w.isa, b, [k, i2, i3], rows.clone(), &mut room);
            for (j, factor) in rows.clone().zip(factors) {
                add_scaled(w.isa, y.row([j, i2, i3]), a_row, *factor);
            }
        }
    }
}

dispatch! {
    /// y += x · factor.
    pub fn add_scaled(y: &mut [f32], x: &[f32], factor: f32) = add_scaled_with;
}

/// y += x · factor.
#[inline(always)]
pub fn add_scaled_with<S: Simd>(s: S, y: &mut [f32], x: &[f32], factor: f32) {
    let factor = s.splat(factor);
    let (x, x_rest) = x.as_chunks::<LANES>();
    let (y, y_rest) = y.as_chunks_mut::<LANES>();
    for (y, x) in y.iter_mut().zip(x) {
        s.store(s.fma(s.load(x), factor, s.load(y)), y);
    }
    if !x_rest.is_empty() {
        s.store_part(s.fma(s.load_part(x_rest), factor, s.load_part(y_rest)), y_rest);
    }
}
