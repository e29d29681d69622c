//! y = a with b added to a block of it, which has the shape of b and starts at the element that the params name.
//! Computed in f32.

use super::check::{self, Answer};
use super::elementwise::{read, write};
use super::{Args, Output, Worker, set};
use llmrt_plugin::abi::op::BlockParams;
use llmrt_plugin::{NodeView, Reason};

pub fn supports(node: &NodeView<'_>) -> Answer {
    let p = check::params(BlockParams::from_bytes(node.params_bytes()))?;
    let (a, b) = (check::numbers(node, 0)?, check::numbers(node, 1)?);
    set::fits(&p, a.ne(), b.ne())?;
    check::result(node, a.dtype().ok_or(Reason::Type)?, a.ne())
}

pub fn compute(w: &mut Worker<'_>, args: &Args, out: Output<'_>) {
    let p = args.params(BlockParams::from_bytes);
    let (a, b) = (args.arg(0), args.arg(1));
    let isa = w.isa;
    for (at, part, y) in out.pieces() {
        let [of_a, of_b, of_y, ..] = &mut w.scratch.floats;
        let a_row = read(isa, a, at, part.clone(), of_a);
        let (at_b, in_b, in_part) = set::overlap(&p, b, at, &part);
        let b_row = read(isa, b, at_b, in_b.clone(), of_b);
        let add = |y: &mut [f32]| {
            y.copy_from_slice(a_row);
            y[in_part].iter_mut().zip(b_row).for_each(|(y, b)| *y += b);
        };
        write(isa, y, of_y, add);
    }
}
