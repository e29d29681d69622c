//! y = x, `value` where the index in one dim is among the indices. An index outside the dim fills nothing.

use super::check::{self, Answer, ensure};
use super::moves::{self, Element};
use super::{Args, Output, Worker};
use llmrt_plugin::abi::op::IndexFillParams;
use llmrt_plugin::{NodeView, Reason};

pub fn supports(node: &NodeView<'_>) -> Answer {
    let p = check::params(IndexFillParams::from_bytes(node.params_bytes()))?;
    ensure(p.dim < 4, Reason::Param)?;
    let (x, dtype) = moves::plain(node, 0)?;
    let indices = check::ints(node, 1)?;
    check::vector(&indices, indices.ne()[0])?;
    check::result(node, dtype, x.ne())
}

pub fn compute(w: &mut Worker<'_>, a: &Args, out: Output<'_>) {
    let p = a.params(IndexFillParams::from_bytes);
    let (x, dim, indices) = (a.arg(0), p.dim as usize, a.arg(1).ints([0; 3]));
    let (n, value) = (a.dst.ne[0], Element::new(w.isa, a.dst.dtype, p.value));
    let within = |i: &i32| usize::try_from(*i).ok().filter(|&i| i < n);
    moves::each_row(a, out, |mut y, at| {
        if dim > 0 && indices.iter().any(|&i| usize::try_from(i) == Ok(at[dim - 1])) {
            return y.fill(0..n, &value);
        }
        y.copy(0, x, at, 0, n);
        if dim == 0 {
            indices.iter().filter_map(within).for_each(|i| y.fill(i..i + 1, &value));
        }
    });
}
