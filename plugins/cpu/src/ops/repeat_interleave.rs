//! y[i] = x[i div n] in one dim.

use super::check::{self, Answer, ensure};
use super::moves;
use super::{Args, Output, Worker};
use llmrt_plugin::abi::op::RepeatInterleaveParams;
use llmrt_plugin::{NodeView, Reason};

pub fn supports(node: &NodeView<'_>) -> Answer {
    let p = check::params(RepeatInterleaveParams::from_bytes(node.params_bytes()))?;
    let dim = p.dim as usize;
    ensure(dim < 4 && p.n > 0, Reason::Param)?;
    let (x, dtype) = if dim == 0 { moves::plain(node, 0)? } else { moves::any(node, 0)? };
    let mut ne = x.ne();
    ne[dim] = ne[dim].checked_mul(p.n as usize).ok_or(Reason::Shape)?;
    check::result(node, dtype, ne)
}

pub fn compute(_: &mut Worker<'_>, a: &Args, out: Output<'_>) {
    let p = a.params(RepeatInterleaveParams::from_bytes);
    let (x, dim, n) = (a.arg(0), p.dim as usize, p.n as usize);
    moves::each_row(a, out, |mut y, mut at| {
        if dim == 0 {
            return (0..a.dst.ne[0]).for_each(|i| y.copy(i, x, at, i / n, 1));
        }
        at[dim - 1] /= n;
        y.copy(0, x, at, 0, x.ne[0] / x.dtype.block_elems());
    });
}
