//! y = a + b, b of one element; computed in f32.

use super::check::{self, Answer};
use super::{Args, Output, Worker, elementwise, rows};
use llmrt_plugin::{NodeView, Reason};

pub fn supports(node: &NodeView<'_>) -> Answer {
    let (a, b) = (check::numbers(node, 0)?, check::numbers(node, 1)?);
    check::vector(&b, 1)?;
    check::result(node, a.dtype().ok_or(Reason::Type)?, a.ne())
}

pub fn compute(w: &mut Worker<'_>, args: &Args, out: Output<'_>) {
    let b = rows::read(w.isa, args.arg(1), [0; 3], 0..1, &mut [0.0])[0];
    elementwise::map(w, args, out, |_, a, y| y.iter_mut().zip(a).for_each(|(y, a)| *y = a + b));
}
