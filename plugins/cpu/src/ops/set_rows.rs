//! cache[:, ids[i]] = rows[:, i], converted to the cache's dtype. An id outside the cache writes nothing; of rows for
//! one id the last stays. Dims 2 and 3 are batches, over which the ids repeat.

use super::check::{self, Answer, ensure};
use super::{Args, Output, Worker, moves, rows};
use llmrt_plugin::{NodeView, Reason};

pub fn supports(node: &NodeView<'_>) -> Answer {
    let cache = check::decodable(node, 0)?;
    ensure(cache.dtype().is_some_and(rows::can_encode), Reason::Type)?;
    let (from, ids) = (check::numbers(node, 1)?, moves::ids(node, 2)?.ne());
    let dense = from.dtype().is_some_and(|d| from.nb()[0] == d.block_bytes()) || from.ne()[0] <= 1;
    ensure(dense, Reason::Stride)?;
    let (ne, from) = (cache.ne(), from.ne());
    ensure(ne[2].is_multiple_of(ids[1]) && ne[3].is_multiple_of(ids[2]) && ids[3] == 1, Reason::Shape)?;
    let heads = ne[2..] == [1, 1] && from[0].checked_mul(from[1]) == Some(ne[0]) && from[2..] == [ids[0], 1];
    ensure(from == [ne[0], ids[0], ne[2], ne[3]] || heads, Reason::Shape)?;
    moves::in_place(node)
}

pub fn compute(w: &mut Worker<'_>, a: &Args, out: Output<'_>) {
    let (from, ids) = (a.arg(1), a.arg(2));
    let [n, n_slots, n_b, n_c] = a.dst.ne;
    // [n, r, b, c]; otherwise [head_dim, n_heads, r], one head included.
    let flat = from.ne == [n, ids.ne[0], n_b, n_c];
    // An element of a slot has one owner: the last row for it stays.
    let mut out = out.scattered();
    for batch in 0..n_b * n_c {
        let (b, c) = (batch % n_b, batch / n_b);
        for i in 0..ids.ne[0] {
            let Some(slot) = moves::id(ids, [b % ids.ne[1], c % ids.ne[2], 0], i, n_slots) else {
                continue;
            };
            let Some((elems, to)) = out.row([slot, b, c]) else { continue };
            let room = w.scratch.rows.take::<f32>(n);
            if flat {
                rows::encode(w.isa, a.dst.dtype, rows::read(w.isa, from, [i, b, c], elems, room), to);
                continue;
            }
            for (head, part) in room.chunks_exact_mut(from.ne[0]).enumerate() {
                rows::decode(w.isa, from.dtype, from.row_bytes([head, i, 0]), part);
            }
            rows::encode(w.isa, a.dst.dtype, &room[elems], to);
        }
    }
}
