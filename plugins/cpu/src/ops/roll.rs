//! y[(i + shift) mod n] = x[i] in each dim.

use super::check::{self, Answer, ensure};
use super::moves;
use super::{Args, Output, Worker};
use llmrt_plugin::abi::op::RollParams;
use llmrt_plugin::{NodeView, Reason};

pub fn supports(node: &NodeView<'_>) -> Answer {
    let p = check::params(RollParams::from_bytes(node.params_bytes()))?;
    let (x, dtype) = moves::any(node, 0)?;
    ensure(!dtype.is_quantised() || p.shift0 == 0, Reason::Type)?;
    check::result(node, dtype, x.ne())
}

pub fn compute(_: &mut Worker<'_>, a: &Args, out: Output<'_>) {
    let p = a.params(RollParams::from_bytes);
    let x = a.arg(0);
    let back = |i: usize, shift: i32, n: usize| (i as i64 - shift as i64).rem_euclid(n as i64) as usize;
    let n = x.ne[0] / x.dtype.block_elems();
    let first = back(0, p.shift0, n);
    moves::each_row(a, out, |mut y, [i1, i2, i3]| {
        let at = [back(i1, p.shift1, x.ne[1]), back(i2, p.shift2, x.ne[2]), back(i3, p.shift3, x.ne[3])];
        y.copy(0, x, at, first, n - first);
        y.copy(n - first, x, at, 0, first);
    });
}
