//! y[i, j] = Σₖ a[i, k] · b[j, k]; matrix i of b uses matrix i / (n_b / n_a) of a in dims 2 and 3.
//!
//! A unit of work is a few rows of y, or pieces of them: row k of a is read once for all of them. Sums are in the order
//! of k.

use super::check::{self, Answer, ensure};
use super::{Args, Worker, rows};
use crate::simd::{LANES, Simd, dispatch};
use llmrt_plugin::{DType, NodeView, Reason};

/// Rows of y in a unit.
const ROWS: usize = 8;
/// Elements of these rows in a unit; whole blocks of every dtype.
const PIECE: usize = 1024;

pub fn supports(node: &NodeView<'_>) -> Answer {
    let (a, b) = (check::matrix(node, 0)?.ne(), check::numbers(node, 1)?.ne());
    ensure(a[1] == b[1] && b[2] % a[2] == 0 && b[3] % a[3] == 0, Reason::Shape)?;
    check::result(node, DType::F32, [a[0], b[0], b[2], b[3]])
}

pub fn compute(w: &mut Worker<'_>, args: &Args) {
    let (a, b, y) = (args.arg(0), args.arg(1), &args.dst);
    let (m, n) = (y.ne[0], y.ne[1]);
    let (r2, r3) = (b.ne[2] / a.ne[2], b.ne[3] / a.ne[3]);
    let (pieces, blocks) = (m.div_ceil(PIECE), n.div_ceil(ROWS));
    while let Some(unit) = w.take(pieces * blocks * b.ne[2] * b.ne[3]) {
        let (piece, block) = (unit % pieces, unit / pieces % blocks);
        let [i2, i3] = [unit / pieces / blocks % b.ne[2], unit / pieces / blocks / b.ne[2]];
        let elems = piece * PIECE..(piece * PIECE + PIECE).min(m);
        let rows = block * ROWS..(block * ROWS + ROWS).min(n);
        // SAFETY: the unit's pieces of its rows are this thread's alone.
        let y_row = |j| unsafe { y.part_mut([j, i2, i3], elems.clone()) };
        rows.clone().for_each(|j| y_row(j).fill(0.0));
        let mut room = [0.0; ROWS];
        for k in 0..b.ne[1] {
            let a_room = w.scratch.rows.take(elems.len());
            let a_row = rows::read(w.isa, a, [k, i2 / r2, i3 / r3], elems.clone(), a_room);
            let factors = rows::read(w.isa, b, [k, i2, i3], rows.clone(), &mut room);
            for (j, factor) in rows.clone().zip(factors) {
                add_scaled(w.isa, y_row(j), a_row, *factor);
            }
        }
    }
}

dispatch! {
    fn add_scaled(y: &mut [f32], x: &[f32], factor: f32) = add_scaled_with;
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
