//! y[:, i] = table[:, ids[i]], as F32; dims 2 and 3 of the table are batches. An id outside gives zeros.

use super::check::{self, Answer, ensure};
use super::{Args, Worker, rows};
use llmrt_plugin::{DType, NodeView, Reason};

pub fn supports(node: &NodeView<'_>) -> Answer {
    let (table, ids) = (check::decodable(node, 0)?.ne(), check::ints(node, 1)?.ne());
    ensure(ids[1] == table[2] && ids[2] == table[3] && ids[3] == 1, Reason::Shape)?;
    check::result(node, DType::F32, [table[0], ids[0], ids[1], ids[2]])
}

pub fn compute(w: &mut Worker<'_>, a: &Args) {
    let (table, ids) = (a.arg(0), a.arg(1));
    for row in w.share(a.dst.n_rows()) {
        let at @ [i, b, c] = a.dst.unravel(row);
        // SAFETY: rows are shared out.
        let y = unsafe { a.dst.row_mut(at) };
        match usize::try_from(ids.ints([b, c, 0])[i]) {
            Ok(id) if id < table.ne[1] => rows::decode(w.isa, table.dtype, table.row_bytes([id, b, c]), y),
            _ => y.fill(0.0),
        }
    }
}
