//! An image [c, width, height] cut into square windows [c, window, window, n], 0 past its edges.

use super::check::{self, Answer, ensure};
use super::moves::{self, Element};
use super::{Args, Output, Worker};
use llmrt_plugin::abi::op::WinParams;
use llmrt_plugin::{NodeView, Reason};

pub fn supports(node: &NodeView<'_>) -> Answer {
    let p = check::params(WinParams::from_bytes(node.params_bytes()))?;
    ensure(p.window > 0 && p.width == 0 && p.height == 0, Reason::Param)?;
    let (x, dtype) = moves::plain(node, 0)?;
    let ([c, width, height, n], w) = (x.ne(), p.window as usize);
    ensure(n == 1, Reason::Shape)?;
    let n = n_windows(width, height, w).ok_or(Reason::Shape)?;
    check::result(node, dtype, [c, w, w, n])
}

/// Windows that cover an image.
pub fn n_windows(width: usize, height: usize, window: usize) -> Option<usize> {
    width.div_ceil(window).checked_mul(height.div_ceil(window))
}

pub fn compute(w: &mut Worker<'_>, a: &Args, out: Output<'_>) {
    let (x, window) = (a.arg(0), a.dst.ne[1]);
    let (n, across) = (x.ne[0], x.ne[1].div_ceil(window));
    let zero = Element::new(w.isa, a.dst.dtype, 0.0);
    moves::each_row(a, out, |mut y, [i, j, k]| {
        let (i, j) = (k % across * window + i, k / across * window + j);
        match i < x.ne[1] && j < x.ne[2] {
            true => y.copy(0, x, [i, j, 0], 0, n),
            false => y.fill(0..n, &zero),
        }
    });
}
