//! cache[:, slots[i]] = rows[:, i], converted to the cache's dtype. A slot outside the cache writes nothing.

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
    let dst = node.dst();
    ensure(dst.dtype() == cache.dtype(), Reason::Type)?;
    ensure(dst.ne() == ne, Reason::Shape)?;
    ensure(dst.nb() == cache.nb(), Reason::Stride)
}

pub fn compute(w: &mut Worker<'_>, a: &Args) {
    let (from, slots) = (a.arg(1), a.arg(2).ints([0; 3]));
    let n = a.dst.ne[0];
    let heads = n / from.ne[0];
    for token in w.share(slots.len()) {
        let Some(slot) = usize::try_from(slots[token]).ok().filter(|&slot| slot < a.dst.ne[1]) else {
            continue;
        };
        // SAFETY: tokens are shared out, and no slot appears twice.
        let to = unsafe { a.dst.row_bytes_mut([slot, 0, 0]) };
        if from.ne[0] == n {
            rows::encode(w.isa, a.dst.dtype, from.row([token, 0, 0]), to);
            continue;
        }
        let whole = w.scratch.rows.take::<f32>(n);
        for (head, part) in whole.chunks_exact_mut(from.ne[0]).enumerate().take(heads) {
            part.copy_from_slice(from.row([head, token, 0]));
        }
        rows::encode(w.isa, a.dst.dtype, whole, to);
    }
}
