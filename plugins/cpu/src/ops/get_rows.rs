//! y[:, i] = table[:, ids[i]], as F32, or I32 from an I32 table; dims 2 and 3 of the table are batches. An id outside
//! gives zeros.

use super::check::{self, Answer, ensure};
use super::{Args, Output, Worker, moves, rows};
use llmrt_plugin::{DType, NodeView, Reason};

pub fn supports(node: &NodeView<'_>) -> Answer {
    let is_int = check::given(node, 0)?.dtype() == Some(DType::I32);
    let table = if is_int { check::ints(node, 0)? } else { check::decodable(node, 0)? }.ne();
    let ids = check::ints(node, 1)?.ne();
    ensure(ids[1] == table[2] && ids[2] == table[3] && ids[3] == 1, Reason::Shape)?;
    let dtype = if is_int { DType::I32 } else { DType::F32 };
    check::result(node, dtype, [table[0], ids[0], ids[1], ids[2]])
}

pub fn compute(w: &mut Worker<'_>, a: &Args, out: Output<'_>) {
    let (table, ids) = (a.arg(0), a.arg(1));
    for ([i, b, c], y) in out.rows() {
        match moves::id(ids, [b, c, 0], i, table.ne[1]) {
            None => y.bytes().fill(0),
            Some(id) if let Some(panels) = &table.panels => {
                let sealed = w.scratch.rows.take::<u8>(table.row_bytes([0; 3]).len());
                panels.row(table.bytes(), id + table.ne[1] * (b + table.ne[2] * c), sealed);
                rows::decode(w.isa, table.dtype, sealed, y.floats());
            }
            Some(id) if table.dtype == a.dst.dtype => y.bytes().copy_from_slice(table.row_bytes([id, b, c])),
            Some(id) => rows::decode(w.isa, table.dtype, table.row_bytes([id, b, c]), y.floats()),
        }
    }
}
