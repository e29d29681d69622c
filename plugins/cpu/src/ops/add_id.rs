//! y = a [n, n_used, n_tokens] + rows of b [n, n_expert]: row j of token t gets row ids[j, t]. An id outside of b adds
//! nothing. Computed in f32.

use super::check::{self, Answer, ensure};
use super::elementwise::{read, write};
use super::{Args, Output, Worker};
use llmrt_plugin::{NodeView, Reason};

pub fn supports(node: &NodeView<'_>) -> Answer {
    let (a, b, ids) = (check::numbers(node, 0)?, check::numbers(node, 1)?, check::any_ints(node, 2)?);
    let [n, n_used, n_tokens, ne3] = a.ne();
    ensure(ne3 == 1 && b.ne() == [n, b.ne()[1], 1, 1], Reason::Shape)?;
    ensure(ids.ne() == [n_used, n_tokens, 1, 1], Reason::Shape)?;
    check::result(node, a.dtype().ok_or(Reason::Type)?, a.ne())
}

pub fn compute(w: &mut Worker<'_>, args: &Args, out: Output<'_>) {
    let (a, b, ids) = (args.arg(0), args.arg(1), args.arg(2));
    let isa = w.isa;
    for (at, part, y) in out.pieces() {
        let id = usize::try_from(ids.int([at[1], 0, 0], at[0])).ok().filter(|&id| id < b.ne[1]);
        let [of_a, of_b, of_y, ..] = &mut w.scratch.floats;
        let a_row = read(isa, a, at, part.clone(), of_a);
        let b_row = id.map(|id| read(isa, b, [id, 0, 0], part.clone(), of_b));
        let add = |y: &mut [f32]| match b_row {
            Some(b_row) => y.iter_mut().zip(a_row.iter().zip(b_row)).for_each(|(y, (a, b))| *y = a + b),
            None => y.copy_from_slice(a_row),
        };
        write(isa, y, of_y, add);
    }
}
