//! y = a ∘ b, elementwise, ∘ one of + − · ÷; b repeats along each dim.

use super::check::{self, Answer, ensure};
use super::{Args, Worker};
use llmrt_plugin::{DType, NodeView, Op, Reason};

pub fn supports(node: &NodeView<'_>) -> Answer {
    let (a, b) = (check::floats(node, 0)?, check::floats(node, 1)?);
    ensure(a.ne().iter().zip(b.ne()).all(|(a, b)| a % b == 0), Reason::Shape)?;
    check::result(node, DType::F32, a.ne())
}

pub fn compute(w: &mut Worker<'_>, args: &Args) {
    match args.op {
        Op::Add => each(w, args, |a, b| a + b),
        Op::Sub => each(w, args, |a, b| a - b),
        Op::Mul => each(w, args, |a, b| a * b),
        _ => each(w, args, |a, b| a / b),
    }
}

#[inline(always)]
fn each(w: &mut Worker<'_>, args: &Args, f: impl Fn(f32, f32) -> f32) {
    let (a, b) = (args.arg(0), args.arg(1));
    for (row, part) in w.pieces(&args.dst) {
        let at = args.dst.unravel(row);
        let a_row = &a.row(at)[part.clone()];
        let b_row = b.row([at[0] % b.ne[1], at[1] % b.ne[2], at[2] % b.ne[3]]);
        // SAFETY: pieces are disjoint.
        let y = unsafe { args.dst.part_mut(at, part.clone()) };
        if b_row.len() == a.ne[0] {
            let pairs = a_row.iter().zip(&b_row[part]);
            y.iter_mut().zip(pairs).for_each(|(y, (a, b))| *y = f(*a, *b));
        } else if let [b] = *b_row {
            y.iter_mut().zip(a_row).for_each(|(y, a)| *y = f(*a, b));
        } else {
            let repeated = b_row.iter().cycle().skip(part.start % b_row.len());
            y.iter_mut().zip(a_row.iter().zip(repeated)).for_each(|(y, (a, b))| *y = f(*a, *b));
        }
    }
}
