//! y = a followed by b, in one dim.

use super::check::{self, Answer, ensure};
use super::moves;
use super::{Args, Output, Worker};
use llmrt_plugin::abi::op::ConcatParams;
use llmrt_plugin::{NodeView, Reason};

pub fn supports(node: &NodeView<'_>) -> Answer {
    let dim = check::params(ConcatParams::from_bytes(node.params_bytes()))?.dim as usize;
    ensure(dim < 4, Reason::Param)?;
    let ((a, dtype), (b, b_dtype)) = (moves::any(node, 0)?, moves::any(node, 1)?);
    ensure(dtype == b_dtype, Reason::Type)?;
    let (mut ne, b) = (a.ne(), b.ne());
    ensure((0..4).all(|d| d == dim || ne[d] == b[d]), Reason::Shape)?;
    ne[dim] = ne[dim].checked_add(b[dim]).ok_or(Reason::Shape)?;
    check::result(node, dtype, ne)
}

pub fn compute(_: &mut Worker<'_>, args: &Args, out: Output<'_>) {
    let dim = args.params(ConcatParams::from_bytes).dim as usize;
    let (a, b) = (args.arg(0), args.arg(1));
    let block = a.dtype.block_elems();
    let (n_a, n_b) = (a.ne[0] / block, b.ne[0] / block);
    moves::each_row(args, out, |mut y, mut at| {
        if dim == 0 {
            y.copy(0, a, at, 0, n_a);
            y.copy(n_a, b, at, 0, n_b);
        } else if at[dim - 1] < a.ne[dim] {
            y.copy(0, a, at, 0, n_a);
        } else {
            at[dim - 1] -= a.ne[dim];
            y.copy(0, b, at, 0, n_b);
        }
    });
}
