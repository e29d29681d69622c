//! y[:, j, t] = w[:, :, ids[j, t]] · x[:, j mod n_x, t]: each token's chosen experts. An id outside gives zeros.
//!
//! For float weights a thread packs the columns of the experts it takes. These are neighbours, so that an expert is packed by
//! one thread or few, and multiplied while the cache has its columns; those of all experts would be tens of megabytes.

use super::check::{self, Answer, ensure};
use super::mul_mat;
use super::product::{self, Column, Pieces, Product};
use super::product_floats::{self, Words};
use super::{Args, Output, Worker, prepare};
use crate::quant;
use llmrt_plugin::{DType, NodeView, Reason};

pub fn supports(node: &NodeView<'_>) -> Answer {
    let (w, x) = (check::matrix(node, 0)?.ne(), check::numbers(node, 1)?.ne());
    let ids = check::ints(node, 2)?.ne();
    ensure(w[0] == x[0] && w[3] == 1 && ids[2..] == [1, 1], Reason::Shape)?;
    ensure(x[2..] == [ids[1], 1] && ids[0].is_multiple_of(x[1]), Reason::Shape)?;
    check::result(node, DType::F32, [w[1], ids[0], ids[1], 1])
}

pub fn compute(w: &mut Worker<'_>, a: &Args, out: Output<'_>) {
    let (weights, x, ids) = (a.arg(0), a.arg(1), a.arg(2));
    if weights.ne[0] == 0 {
        return mul_mat::zeros(out);
    }
    let (mut own, mut own_packed) = (std::mem::take(&mut w.scratch.x), std::mem::take(&mut w.scratch.packed));
    let mut room = std::mem::take(&mut w.scratch.rows);
    let quantised = prepare::quantise(w, weights, x, &mut own, &mut room);
    w.scratch.rows = room;
    let words = Words::of(weights.dtype);
    let is_float = !quant::is_supported(weights.dtype);
    let mut columns = std::mem::take(&mut w.scratch.columns);
    let each = ids.n_elems() / weights.ne[2].max(1);
    let pieces = Pieces::new(w.rank.n, weights.ne[1], weights.ne[2], each);
    let mut current = None;
    while let Some((expert, rows)) = pieces.take(&out) {
        if current.replace(expert) != Some(expert) {
            columns.clear();
            columns.extend(columns_where(a, |id| id == Some(expert)));
            if is_float && words.ready(x, &columns).is_none() {
                product_floats::pack_all(w.isa, words, x, &columns, &mut w.scratch.rows, &mut own_packed);
            }
        }
        if columns.is_empty() {
            continue;
        }
        let packed = match words.ready(x, &columns) {
            _ if !is_float => &[],
            Some(ready) => ready,
            None => own_packed.take(words.packed(x.ne[0], columns.len())),
        };
        let product =
            Product { w: weights, at: [expert, 0], picked: None, quantised, packed, columns: &columns };
        // SAFETY: a product writes its columns alone; a column has one expert, whose rows are each taken once.
        let mut y = unsafe { out.tile([rows, 0..ids.ne[0], 0..ids.ne[1], 0..1]) };
        product::compute(w.isa, &product, &mut y, w.scratch);
    }
    let outside = |id: Option<usize>| id.is_none_or(|id| id >= weights.ne[2]);
    let share = w.rank.share(ids.n_elems());
    // SAFETY: no product writes these columns, and they are shared out.
    let mut y = unsafe { out.tile([0..weights.ne[1], 0..ids.ne[0], 0..ids.ne[1], 0..1]) };
    for column in columns_where(a, outside).filter(|column| share.contains(&column.y)) {
        y.row(y.unravel(column.y)).fill(0.0);
    }
    w.scratch.columns = columns;
    (w.scratch.x, w.scratch.packed) = (own, own_packed);
}

/// Columns whose expert fulfils a condition.
fn columns_where(a: &Args, condition: impl Fn(Option<usize>) -> bool) -> impl Iterator<Item = Column> {
    let (x, ids) = (a.arg(1), a.arg(2));
    let (n_used, n_x) = (ids.ne[0], x.ne[1]);
    (0..ids.ne[1]).flat_map(move |token| (0..n_used).map(move |j| (token, j))).filter_map(
        move |(token, j)| {
            let id = usize::try_from(ids.ints([token, 0, 0])[j]).ok();
            condition(id).then_some(Column { x: token * n_x + j % n_x, y: token * n_used + j })
        },
    )
}
