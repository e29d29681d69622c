//! y[i, j] = x[i] where i = j, else 0.

use super::check::{self, Answer, ensure};
use super::moves::{self, Element};
use super::{Args, Output, Worker};
use llmrt_plugin::{NodeView, Reason};

pub fn supports(node: &NodeView<'_>) -> Answer {
    let (x, dtype) = moves::plain(node, 0)?;
    let [n, ne1, ne2, ne3] = x.ne();
    ensure(ne1 == 1, Reason::Shape)?;
    check::result(node, dtype, [n, n, ne2, ne3])
}

pub fn compute(w: &mut Worker<'_>, a: &Args, out: Output<'_>) {
    let zero = Element::new(w.isa, a.dst.dtype, 0.0);
    moves::each_row(a, out, |mut y, [i, i2, i3]| {
        y.fill(0..a.dst.ne[0], &zero);
        y.copy(i, a.arg(0), [0, i2, i3], i, 1);
    });
}
