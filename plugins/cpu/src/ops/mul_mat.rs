//! y[i, j] = Σₖ w[k, i] · x[k, j]; matrix b of x uses matrix b / (n_x / n_w) of w in dims 2 and 3.
//!
//! Float weights meet x as f32; quantised ones meet x quantised to 8 bits. Rows of w are handed out to the threads;
//! each thread makes all columns of its rows.

use super::check::{self, Answer, ensure};
use super::{Args, Worker, product, rows};
use crate::quant::{self, Format, GROUP, XGroup, activations, with_format};
use crate::scratch::{Arena, Plain};
use crate::tensor::Tensor;
use llmrt_plugin::{DType, NodeView, Reason};

pub use product::Column;

/// Activations up to which each thread prepares all of them, which is sooner done than waiting for the others.
const FEW: usize = 16384;

pub fn supports(node: &NodeView<'_>) -> Answer {
    let (w, x) = (check::matrix(node, 0)?.ne(), check::numbers(node, 1)?.ne());
    ensure(w[0] == x[0] && x[2] % w[2] == 0 && x[3] % w[3] == 0, Reason::Shape)?;
    check::result(node, DType::F32, [w[1], x[1], x[2], x[3]])
}

pub fn compute(w: &mut Worker<'_>, a: &Args) {
    let (weights, x) = (a.arg(0), a.arg(1));
    let (mut own, mut room) = (std::mem::take(&mut w.scratch.x), std::mem::take(&mut w.scratch.rows));
    let Prepared { x, quantised } = &prepare(w, weights, x, &mut own, &mut room);
    w.scratch.rows = room;
    let mut columns = std::mem::take(&mut w.scratch.columns);
    let (r2, r3) = (x.ne[2] / weights.ne[2], x.ne[3] / weights.ne[3]);

    let pieces = product::Pieces::new(w.n, weights.ne[1], weights.ne[2] * weights.ne[3]);
    let mut current = None;
    while let Some((matrix, rows)) = pieces.take(w) {
        let at = [matrix % weights.ne[2], matrix / weights.ne[2]];
        if current.replace(matrix) != Some(matrix) {
            columns.clear();
            for row in 0..x.n_rows() {
                let [_, i2, i3] = x.unravel(row);
                if [i2 / r2, i3 / r3] == at {
                    columns.push(Column { x: row, y: row });
                }
            }
        }
        let product = product::Product { w: weights, at, x, quantised, columns: &columns, y: &a.dst };
        product::compute(w.isa, &product, rows, w.scratch);
    }
    w.scratch.columns = columns;
    w.scratch.x = own;
}

/// Bytes of the team's memory for prepared activations; 0 if each thread makes its own, or none are needed.
pub fn shared_bytes(a: &Args) -> usize {
    let (weights, x) = (a.arg(0), a.arg(1));
    match x.n_elems() > FEW {
        true if quant::is_supported(weights.dtype) => x.n_elems() / GROUP * size_of::<XGroup>(),
        true if !is_ready(x) => x.n_elems() * size_of::<f32>(),
        _ => 0,
    }
}

/// Activations in the form in which a dtype of weights meets them.
pub struct Prepared<'a> {
    /// F32 with dense rows for float weights; for quantised ones only its shape counts.
    pub x: Tensor,
    /// Its rows quantised, one after the other; empty for float weights.
    pub quantised: &'a [XGroup],
}

/// The rows of x as `weights` need them. `own` and `room` are working memory: for the rows, and for one of them.
pub fn prepare<'a>(
    w: &Worker<'a>,
    weights: &Tensor,
    x: &Tensor,
    own: &'a mut Arena,
    room: &mut Arena,
) -> Prepared<'a> {
    with_format!(weights.dtype, F => quantise::<F>(w, x, own, room), else as_floats(w, x, own, room))
}

fn quantise<'a, F: Format>(w: &Worker<'a>, x: &Tensor, own: &'a mut Arena, room: &mut Arena) -> Prepared<'a> {
    let make = |row: &[f32], out: &mut [XGroup]| activations::quantise::<F>(w.isa, row, out);
    Prepared { x: *x, quantised: make_rows(w, x, x.ne[0] / GROUP, own, room, make) }
}

fn as_floats<'a>(w: &Worker<'a>, x: &Tensor, own: &'a mut Arena, room: &mut Arena) -> Prepared<'a> {
    if is_ready(x) {
        return Prepared { x: *x, quantised: &[] };
    }
    let make = |row: &[f32], out: &mut [f32]| out.copy_from_slice(row);
    let floats = make_rows(w, x, x.ne[0], own, room, make);
    // SAFETY: `floats` lives for `'a`, as does what is returned.
    Prepared { x: unsafe { Tensor::of_floats(floats, x.ne) }, quantised: &[] }
}

/// Whether rows are floats in memory already.
fn is_ready(x: &Tensor) -> bool {
    x.dtype == DType::F32 && x.has_dense_rows()
}

/// `per_row` numbers of each row of x: few by every thread for itself, many by all of them together.
fn make_rows<'a, T: Plain>(
    w: &Worker<'a>,
    x: &Tensor,
    per_row: usize,
    own: &'a mut Arena,
    room: &mut Arena,
    make: impl Fn(&[f32], &mut [T]),
) -> &'a [T] {
    let n = per_row * x.n_rows();
    let room = room.take(x.ne[0]);
    let mut make_row = |row, out: &mut [T]| make(rows::read(w.isa, x, x.unravel(row), 0..x.ne[0], room), out);
    if x.n_elems() <= FEW {
        let own = own.take::<T>(n);
        own.chunks_exact_mut(per_row).enumerate().for_each(|(row, out)| make_row(row, out));
        return own;
    }
    for row in w.share(x.n_rows()) {
        // SAFETY: rows are shared out, and the next use is after the barrier.
        make_row(row, unsafe { w.shared.part_mut(row * per_row..(row + 1) * per_row) });
    }
    (w.meet)();
    // SAFETY: all wrote before the barrier; the next node that writes waits for this one to end.
    unsafe { w.shared.get(n) }
}
