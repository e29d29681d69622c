//! cache[:, slots[i]] = rows[:, i], converted to the cache's dtype. A slot outside the cache writes nothing; of rows
//! for one slot the last stays.

use super::check::{self, Answer, ensure};
use super::{Args, Worker, rows};
use llmrt_plugin::{NodeView, Reason};

pub fn supports(node: &NodeView<'_>) -> Answer {
    let cache = check::decodable(node, 0)?;
    ensure(cache.dtype().is_some_and(rows::can_encode), Reason::Type)?;
    let (ne, from) = (cache.ne(), check::floats(node, 1)?.ne());
    let slots = check::ints(node, 2)?;
    let n_tokens = slots.ne()[0];
    check::vector(&slots, n_tokens)?;
    let flat = from == [ne[0], n_tokens, 1, 1];
    let heads = from[0] * from[1] == ne[0] && from[2..] == [n_tokens, 1];
    ensure(ne[2..] == [1, 1] && (flat || heads), Reason::Shape)?;
    // Slots share no byte, or threads that own different ones would meet.
    let row_bytes = cache.dtype().map_or(0, |d| ne[0] / d.block_elems() * d.block_bytes());
    ensure(cache.nb()[1] >= row_bytes, Reason::Stride)?;
    let dst = node.dst();
    ensure(dst.dtype() == cache.dtype(), Reason::Type)?;
    ensure(dst.ne() == ne, Reason::Shape)?;
    ensure(dst.nb() == cache.nb(), Reason::Stride)
}

pub fn compute(w: &mut Worker<'_>, a: &Args) {
    let (from, slots) = (a.arg(1), a.arg(2).ints([0; 3]));
    let n = a.dst.ne[0];
    // [n, n_tokens]; otherwise [head_dim, n_heads, n_tokens], one head included.
    let flat = from.ne[..2] == [n, slots.len()] && from.ne[2] == 1;
    for (token, &slot) in slots.iter().enumerate() {
        let Some(slot) = usize::try_from(slot).ok().filter(|&slot| slot < a.dst.ne[1]) else {
            continue;
        };
        if owner(slot, w.n) != w.index {
            continue;
        }
        // SAFETY: a slot has one owner, and slots share no byte, as `supports` saw to.
        let to = unsafe { a.dst.row_bytes_mut([slot, 0, 0]) };
        if flat {
            rows::encode(w.isa, a.dst.dtype, from.row([token, 0, 0]), to);
            continue;
        }
        let whole = w.scratch.rows.take::<f32>(n);
        for (head, part) in whole.chunks_exact_mut(from.ne[0]).enumerate() {
            part.copy_from_slice(from.row([head, token, 0]));
        }
        rows::encode(w.isa, a.dst.dtype, whole, to);
    }
}

/// The thread that writes a slot. The golden ratio's multiples lie evenly, so neither neighbouring slots nor the first
/// slots of blocks gather on a thread.
fn owner(slot: usize, n_threads: usize) -> usize {
    let part = (slot as u32).wrapping_mul(0x9e37_79b9);
    ((part as u64 * n_threads as u64) >> 32) as usize
}
