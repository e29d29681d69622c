//! y = a ∘ b, elementwise, ∘ one of + − · ÷ and the power; b repeats along each dim. Computed in f32.

use super::check::{self, Answer, ensure};
use super::elementwise::{flattened, read, write};
use super::{Args, Output, Worker, rows};
use crate::scratch::Arena;
use crate::simd::Isa;
use crate::tensor::Tensor;
use llmrt_plugin::{NodeView, Op, Reason};
use std::ops::Range;

pub fn supports(node: &NodeView<'_>) -> Answer {
    let (a, b) = (check::numbers(node, 0)?, check::numbers(node, 1)?);
    ensure(a.ne().iter().zip(b.ne()).all(|(a, b)| a.is_multiple_of(b)), Reason::Shape)?;
    check::result(node, a.dtype().ok_or(Reason::Type)?, a.ne())
}

pub fn compute(w: &mut Worker<'_>, args: &Args, out: Output<'_>) {
    match args.op {
        Op::Add => each(w, args, out, |a, b| a + b),
        Op::Sub => each(w, args, out, |a, b| a - b),
        Op::Mul => each(w, args, out, |a, b| a * b),
        Op::Div => each(w, args, out, |a, b| a / b),
        _ => each(w, args, out, f32::powf),
    }
}

#[inline(always)]
fn each(w: &mut Worker<'_>, args: &Args, out: Output<'_>, f: impl Fn(f32, f32) -> f32) {
    let isa = w.isa;
    let (a, b) = (args.arg(0), args.arg(1));
    let ([a, b], out) = match a.ne == b.ne {
        true => flattened([a, b], out),
        false => ([*a, *b], out),
    };
    let combine = |a: &[f32], b: &[f32], y: &mut [f32]| match *b {
        [b] => y.iter_mut().zip(a).for_each(|(y, a)| *y = f(*a, b)),
        _ => y.iter_mut().zip(a.iter().zip(b)).for_each(|(y, (a, b))| *y = f(*a, *b)),
    };
    let row_of_b = |at: [usize; 3]| [at[0] % b.ne[1], at[1] % b.ne[2], at[2] % b.ne[3]];
    let one_or_all = b.ne[0] == 1 || b.ne[0] == a.ne[0];
    if a.has_f32_rows() && b.has_f32_rows() && args.dst.has_f32_rows() && one_or_all {
        for (at, part, y) in out.pieces() {
            let b_row = b.row(row_of_b(at));
            let b_row = if b_row.len() == 1 { b_row } else { &b_row[part.clone()] };
            combine(&a.row(at)[part], b_row, y.floats());
        }
        return;
    }
    for (at, part, y) in out.pieces() {
        let at_b = row_of_b(at);
        let [of_a, of_b, of_y, ..] = &mut w.scratch.floats;
        let a_row = read(isa, &a, at, part.clone(), of_a);
        let b_row = match b.ne[0] {
            1 => rows::read(isa, &b, at_b, 0..1, of_b.take(1)),
            n_b if n_b == a.ne[0] => read(isa, &b, at_b, part.clone(), of_b),
            _ => repeated(isa, &b, at_b, part.clone(), of_b),
        };
        write(isa, y, of_y, |y| combine(a_row, b_row, y));
    }
}

/// Elements `part` of the row of `b` at these indices that is repeated over and over.
fn repeated<'a>(isa: Isa, b: &Tensor, at: [usize; 3], part: Range<usize>, arena: &'a mut Arena) -> &'a [f32] {
    let (all, room) = arena.take::<f32>(2 * part.len()).split_at_mut(part.len());
    let mut filled = 0;
    while filled < all.len() {
        let start = (part.start + filled) % b.ne[0];
        let n = (b.ne[0] - start).min(all.len() - filled);
        all[filled..filled + n].copy_from_slice(rows::read(isa, b, at, start..start + n, room));
        filled += n;
    }
    all
}
