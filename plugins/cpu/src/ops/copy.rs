//! y = x without gaps, converted to another dtype. The one op that reads rows with gaps (permuted dim 0).

use super::check::{self, Answer, ensure};
use super::{Args, Worker, rows};
use crate::tensor::Tensor;
use llmrt_plugin::abi::op::CopyParams;
use llmrt_plugin::{DType, NodeView, Reason};

pub fn supports(node: &NodeView<'_>) -> Answer {
    let p = check::params(CopyParams::from_bytes(node.params_bytes()))?;
    let x = check::given(node, 0)?;
    let (from, to) = (x.dtype().ok_or(Reason::Type)?, DType::from_id(p.dtype).ok_or(Reason::Param)?);
    let numbers = rows::can_decode(from) && rows::can_encode(to);
    ensure(numbers || (from == to && from.block_elems() == 1), Reason::Type)?;
    ensure(x.layout_id() == 0, Reason::Layout)?;
    let ne = x.ne();
    ensure(ne[0] % to.block_elems() == 0 && ne[0] % from.block_elems() == 0, Reason::Shape)?;
    let dense = x.nb()[0] == from.block_bytes() || ne[0] == from.block_elems();
    ensure(dense || from.block_elems() == 1, Reason::Stride)?;
    check::result(node, to, ne)
}

pub fn compute(w: &mut Worker<'_>, a: &Args) {
    let x = a.arg(0);
    for row in w.share(a.dst.n_rows()) {
        let at = a.dst.unravel(row);
        // SAFETY: rows are shared out.
        let y = unsafe { a.dst.row_bytes_mut(at) };
        let from = match x.nb[0] == x.dtype.block_bytes() || x.ne[0] == 1 {
            true => x.row_bytes(at),
            false => gather(x, at, w.scratch.rows.take(x.ne[0] * x.dtype.block_bytes())),
        };
        if x.dtype == a.dst.dtype {
            y.copy_from_slice(from);
        } else {
            let floats = w.scratch.sums.take::<f32>(x.ne[0]);
            rows::decode(w.isa, x.dtype, from, floats);
            rows::encode(w.isa, a.dst.dtype, floats, y);
        }
    }
}

/// Elements with gaps between them, one after the other.
fn gather<'a>(x: &Tensor, at: [usize; 3], out: &'a mut [u8]) -> &'a [u8] {
    let start = x.offset_of(at);
    let size = x.dtype.block_bytes();
    for (i, out) in out.chunks_exact_mut(size).enumerate() {
        out.copy_from_slice(&x.bytes()[start + i * x.nb[0]..][..size]);
    }
    out
}
