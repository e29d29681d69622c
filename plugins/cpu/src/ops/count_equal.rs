//! y = how many elements of a and b are equal.

use super::check::{self, Answer, ensure};
use super::{Args, Output, Worker};
use llmrt_plugin::{DType, NodeView, Reason};

pub fn supports(node: &NodeView<'_>) -> Answer {
    let (a, b) = (check::any_ints(node, 0)?, check::any_ints(node, 1)?);
    ensure(a.ne() == b.ne(), Reason::Shape)?;
    check::result(node, DType::I64, [1; 4])
}

pub fn compute(_: &mut Worker<'_>, args: &Args, out: Output<'_>) {
    let (a, b) = (args.arg(0), args.arg(1));
    let in_row = |at| (0..a.ne[0]).filter(|&i| a.int(at, i) == b.int(at, i)).count();
    // One number has one maker.
    for (_, y) in out.rows() {
        let n: usize = (0..a.n_rows()).map(|row| in_row(a.unravel(row))).sum();
        y.bytes().copy_from_slice(&(n as i64).to_ne_bytes());
    }
}
