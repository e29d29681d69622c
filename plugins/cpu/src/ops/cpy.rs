//! y[i] = x[i] over all elements in order, converted to y's dtype, in place; dims may differ.

use super::check::{Answer, ensure};
use super::{Args, Output, Worker, copy, moves};
use llmrt_plugin::{NodeView, Reason};

pub fn supports(node: &NodeView<'_>) -> Answer {
    let ((y, to), (x, from)) = (moves::any(node, 0)?, moves::any(node, 1)?);
    copy::convertible(from, to)?;
    let count = |ne: [usize; 4]| ne.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
    ensure(count(x.ne()).is_some() && count(x.ne()) == count(y.ne()), Reason::Shape)?;
    moves::in_place(node)
}

pub fn compute(w: &mut Worker<'_>, a: &Args, out: Output<'_>) {
    copy::convert(w, a.arg(1), &a.dst, out);
}
