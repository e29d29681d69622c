//! y[i, j] = x[i, j] within a triangle, else 0.

use super::check::{self, Answer, ensure};
use super::moves::{self, Element};
use super::{Args, Output, Worker};
use llmrt_plugin::abi::op::TriParams;
use llmrt_plugin::{NodeView, Reason};

pub fn supports(node: &NodeView<'_>) -> Answer {
    ensure(check::params(TriParams::from_bytes(node.params_bytes()))?.kind < 4, Reason::Param)?;
    let (x, dtype) = moves::plain(node, 0)?;
    check::result(node, dtype, x.ne())
}

pub fn compute(w: &mut Worker<'_>, a: &Args, out: Output<'_>) {
    let kind = a.params(TriParams::from_bytes).kind;
    let (n, zero) = (a.dst.ne[0], Element::new(w.isa, a.dst.dtype, 0.0));
    moves::each_row(a, out, |mut y, at| {
        let [on, past] = [at[0].min(n), (at[0] + 1).min(n)];
        let kept = match kind {
            0 => on..n,
            1 => past..n,
            2 => 0..past,
            _ => 0..on,
        };
        y.fill(0..kept.start, &zero);
        y.copy(kept.start, a.arg(0), at, kept.start, kept.len());
        y.fill(kept.end..n, &zero);
    });
}
