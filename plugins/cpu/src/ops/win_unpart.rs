//! Windows put together to an image [c, width, height]; what is past its edges is dropped.

use super::check::{self, Answer, ensure};
use super::win_part::n_windows;
use super::{Args, Output, Worker, moves};
use llmrt_plugin::abi::op::WinParams;
use llmrt_plugin::{NodeView, Reason};

pub fn supports(node: &NodeView<'_>) -> Answer {
    let p = check::params(WinParams::from_bytes(node.params_bytes()))?;
    let [w, width, height] = [p.window, p.width, p.height].map(|n| n as usize);
    ensure(w > 0, Reason::Param)?;
    let (x, dtype) = moves::plain(node, 0)?;
    let [c, w1, w2, n] = x.ne();
    ensure([w1, w2] == [w, w] && Some(n) == n_windows(width, height, w), Reason::Shape)?;
    check::result(node, dtype, [c, width, height, 1])
}

pub fn compute(_: &mut Worker<'_>, a: &Args, out: Output<'_>) {
    let x = a.arg(0);
    let (n, window) = (x.ne[0], x.ne[1]);
    let across = a.dst.ne[1].div_ceil(window);
    moves::each_row(a, out, |mut y, [i, j, _]| {
        y.copy(0, x, [i % window, j % window, j / window * across + i / window], 0, n);
    });
}
