//! y[i] = x[i mod n_x] in each dim: x repeated until the dims of y are full.

use super::check::{self, Answer, ensure};
use super::moves;
use super::{Args, Output, Worker};
use llmrt_plugin::abi::op::ShapeParams;
use llmrt_plugin::{NodeView, Reason};

pub fn supports(node: &NodeView<'_>) -> Answer {
    let p = check::params(ShapeParams::from_bytes(node.params_bytes()))?;
    let (x, dtype) = moves::any(node, 0)?;
    let ne = [p.ne0, p.ne1, p.ne2, p.ne3].map(|n| n as usize);
    let fits = |(n, of): (usize, usize)| n.checked_rem(of).unwrap_or(n) == 0;
    ensure(ne.into_iter().zip(x.ne()).all(fits), Reason::Shape)?;
    check::result(node, dtype, ne)
}

pub fn compute(_: &mut Worker<'_>, a: &Args, out: Output<'_>) {
    let x = a.arg(0);
    let n = x.ne[0] / x.dtype.block_elems();
    moves::each_row(a, out, |mut y, [i1, i2, i3]| {
        let at = [i1 % x.ne[1], i2 % x.ne[2], i3 % x.ne[3]];
        (0..a.dst.ne[0] / x.ne[0]).for_each(|i| y.copy(i * n, x, at, 0, n));
    });
}
