//! Activations in the form that products take: quantised to 8 bits for quantised weights, packed for floats.
//!
//! Few are made by every thread for itself, in its memory, many by the team together, in the team's; the next products with
//! the same activations find them there.

use super::mul_mat::columns_of;
use super::product_floats::{self, Words};
use super::{Args, Column, Worker, rows};
use crate::quant::{self, Format, GROUP, Panel, XGroup, activations, with_format};
use crate::scratch::Arena;
use crate::tensor::Tensor;
use bytemuck::Pod;
use llmrt_plugin::Op;
use std::ops::Range;

/// Activations up to which each thread prepares all of them, which is sooner done than waiting for the others.
const FEW: usize = 16384;

/// Bytes of the team's memory for a product's prepared activations; 0 if each thread makes its own, or none are needed, as where
/// there is no result and nothing runs.
pub fn shared_bytes(a: &Args) -> usize {
    let (weights, x) = (a.arg(0), a.arg(1));
    match (a.op, quant::is_supported(weights.dtype)) {
        (Op::MulMat | Op::MulMatId | Op::MulMatSparse, _) if x.n_elems() <= FEW || a.dst.n_elems() == 0 => 0,
        (Op::MulMat | Op::MulMatId | Op::MulMatSparse, true) => x.n_elems() / GROUP * size_of::<XGroup>(),
        (Op::MulMat | Op::MulMatSparse, false) => n_packed(weights, x) * size_of::<f32>(),
        _ => 0,
    }
}

/// Prepared activations that following products reuse: in the team's memory, or in that of each thread.
#[derive(Clone, Copy, PartialEq)]
pub struct Prepared {
    x: Tensor,
    form: Form,
}

/// A form of prepared activations.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    /// Sums per half or group, with where they start and what is taken off the weights, or with minima.
    Quantised { halves: usize, start: i32, offset: i32, minima: bool },
    /// Tiles of the columns of as many matrices as dims 2 and 3 of the weights have.
    Packed(Words, [usize; 2]),
    /// Tiles of the columns of the last expert: nothing for another product.
    OfAnExpert,
}

impl Prepared {
    /// The form that a node prepares, if it does.
    pub fn by(a: &Args) -> Option<Prepared> {
        let weights = a.arg(0);
        let is_product = matches!(a.op, Op::MulMat | Op::MulMatId | Op::MulMatSparse) && a.dst.n_elems() > 0;
        let packed = match a.op {
            Op::MulMatId => Form::OfAnExpert,
            _ => Form::Packed(Words::of(weights.dtype), [weights.ne[2], weights.ne[3]]),
        };
        let form = with_format!(weights.dtype, F => Form::of::<F>(), else packed);
        is_product.then(|| Prepared { x: *a.arg(1), form })
    }

    /// Whether another product may use it.
    pub fn is_for_others(&self) -> bool {
        self.form != Form::OfAnExpert
    }

    /// Whether it is in the team's memory.
    pub fn is_shared(&self) -> bool {
        self.x.n_elems() > FEW
    }

    /// Whether it is as good as before once a node has written these bytes.
    pub fn survives(&self, written: &Range<usize>) -> bool {
        let x = self.x.span();
        x.end <= written.start || written.end <= x.start
    }
}

impl Form {
    fn of<F: Format>() -> Form {
        let (halves, start, minima) = (F::Group::HALVES, F::Group::START, F::Group::MINIMA);
        Form::Quantised { halves, start, offset: F::OFFSET, minima }
    }
}

/// Columns that each matrix of weights is multiplied with.
fn n_columns(weights: &Tensor, x: &Tensor) -> usize {
    x.n_rows() / (weights.ne[2] * weights.ne[3]).max(1)
}

/// Words of all packed columns; 0 where they are used in place.
fn n_packed(weights: &Tensor, x: &Tensor) -> usize {
    let (words, n) = (Words::of(weights.dtype), n_columns(weights, x));
    match words.are_ready(x, n) {
        true => 0,
        false => words.packed(x.ne[0], n) * weights.ne[2] * weights.ne[3],
    }
}

/// All rows of x quantised for `weights`, one after the other; none for float weights. `own` and `room` are working
/// memory: for the rows, and for one of them.
pub fn quantise<'a>(
    w: &Worker<'a>,
    weights: &Tensor,
    x: &Tensor,
    own: &'a mut Arena,
    room: &mut Arena,
) -> &'a [XGroup] {
    with_format!(weights.dtype, F => quantise_for::<F>(w, x, own, room), else &[])
}

fn quantise_for<'a, F: Format>(
    w: &Worker<'a>,
    x: &Tensor,
    own: &'a mut Arena,
    room: &mut Arena,
) -> &'a [XGroup] {
    let (n, room) = (x.ne[0], room.take(x.ne[0]));
    make(w, x, x.n_rows(), n / GROUP, own, |row, out| {
        activations::quantise::<F>(w.isa, rows::read(w.isa, x, x.unravel(row), 0..n, room), out);
    })
}

/// The columns of all matrices packed for float weights, matrix by matrix; nothing where they are ready.
pub fn pack<'a>(
    w: &Worker<'a>,
    weights: &Tensor,
    x: &Tensor,
    own: &'a mut Arena,
    room: &mut Arena,
) -> &'a [f32] {
    let n_packed = n_packed(weights, x);
    if quant::is_supported(weights.dtype) || n_packed == 0 {
        return &[];
    }
    let (words, n) = (Words::of(weights.dtype), n_columns(weights, x));
    let k = words.count(x.ne[0]);
    let (n_tiles, width) = (product_floats::n_tiles(n), product_floats::width(n));
    make(w, x, n_packed / (k * width), k * width, own, |i, out| {
        let mut tile = [Column { x: 0, y: 0 }; product_floats::TILE];
        let mut n = 0;
        let columns = columns_of(weights, x, i / n_tiles).skip(i % n_tiles * width).take(width);
        for (to, column) in tile.iter_mut().zip(columns) {
            *to = column;
            n += 1;
        }
        product_floats::pack(w.isa, words, x, &tile[..n], width, room, out);
    })
}

/// `n` times `each` numbers made of x: few by every thread for itself, many by all of them together.
fn make<'a, T: Pod>(
    w: &Worker<'a>,
    x: &Tensor,
    n: usize,
    each: usize,
    own: &'a mut Arena,
    mut one: impl FnMut(usize, &mut [T]),
) -> &'a [T] {
    if x.n_elems() <= FEW {
        let own = own.take::<T>(n * each);
        if !w.is_prepared {
            own.chunks_exact_mut(each).enumerate().for_each(|(i, out)| one(i, out));
        }
        return own;
    }
    if !w.is_prepared {
        for i in w.rank.share(n) {
            // SAFETY: they are shared out, and the next use is after the barrier.
            one(i, unsafe { w.shared.part_mut(i * each..(i + 1) * each) });
        }
        (w.barrier)();
    }
    // SAFETY: all wrote before the barrier, here or at the node that prepared them; the next node that writes waits for
    // this one to end (`Step::is_prepared`).
    unsafe { w.shared.get(n * each) }
}
