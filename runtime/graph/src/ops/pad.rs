//! y = x with elements around it: a value, as ggml's pad; x mirrored at its ends, which are not repeated, as ggml's
//! pad_reflect_1d but in any dim; or x again and again, as ggml's circular pad.
//!
//! Result: dtype of x (any plain one); each dim longer by before and after.

use super::moves::{self, From};
use super::{Inferred, Rules, case::Case, check, copy_cases, value::Value};
use crate::graph::Graph;
use crate::tensor::{Shape, Tensor, TensorDef};
use llmrt_abi::{DType, Op, op::PadParams};

/// What stands around a padded tensor.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Padding {
    /// This value; integers drop its fraction.
    Constant(f32),
    /// The tensor mirrored at its ends.
    Mirrored,
    /// The tensor again.
    Circular,
}

impl Graph {
    /// `x` with `before[d]` elements before and `after[d]` after those of dim d.
    pub fn pad(&mut self, x: Tensor, before: [u32; 4], after: [u32; 4], padding: Padding) -> Tensor {
        let (mode, value) = match padding {
            Padding::Constant(value) => (CONSTANT, value),
            Padding::Mirrored => (MIRRORED, 0.0),
            Padding::Circular => (CIRCULAR, 0.0),
        };
        let ([before0, before1, before2, before3], [after0, after1, after2, after3]) = (before, after);
        let p = PadParams { mode, value, before0, after0, before1, after1, before2, after2, before3, after3 };
        self.push(Op::Pad, &[Some(x)], &p.to_bytes())
    }
}

const CONSTANT: u32 = 0;
const MIRRORED: u32 = 1;
const CIRCULAR: u32 = 2;

pub(super) const RULES: Rules = Rules { infer, reference, decompose: None, cases };

fn infer(src: &[Option<&TensorDef>], params: &[u8]) -> Inferred {
    let p = check::params(PadParams::from_bytes(params))?;
    let x = moves::plain(src, 0, "x")?;
    let (before, after) = amounts(&p);
    let mut ne = x.ne;
    for d in 0..4 {
        let n = x.ne[d];
        let (most, what) = match p.mode {
            CONSTANT => (u64::MAX, "constant"),
            MIRRORED => (n.saturating_sub(1), "mirrored"),
            CIRCULAR => (if n == 0 { 0 } else { u64::MAX }, "circular"),
            mode => return Err(format!("padding mode {mode}, expected 0 to 2")),
        };
        if before[d] > most || after[d] > most {
            return Err(format!("dim {d} of {:?} has at most {most} {what} elements at an end", x.ne));
        }
        ne[d] = n.checked_add(before[d] + after[d]).ok_or_else(|| format!("dim {d} is too large"))?;
    }
    Ok((x.dtype, ne))
}

/// Elements before and after each dim.
fn amounts(p: &PadParams) -> (Shape, Shape) {
    let before = [p.before0, p.before1, p.before2, p.before3];
    let after = [p.after0, p.after1, p.after2, p.after3];
    (before.map(u64::from), after.map(u64::from))
}

fn reference(src: &[Option<&Value>], params: &[u8]) -> Value {
    let p = PadParams::from_bytes(params).unwrap_or_default();
    let x = check::arg(src, 0);
    let (before, after) = amounts(&p);
    let ne = std::array::from_fn(|d| before[d] + x.ne[d] + after[d]);
    moves::gather(ne, &[x], |at| {
        let mut from = [0; 4];
        for d in 0..4 {
            match source(p.mode, at[d] as i64 - before[d] as i64, x.ne[d] as i64) {
                Some(i) => from[d] = i as u64,
                None => return From::Number(p.value),
            }
        }
        From::Source(0, from)
    })
}

/// The element of a dim of `n` that stands at place `i`, counted from its first; `None`: the value.
fn source(mode: u32, i: i64, n: i64) -> Option<i64> {
    match mode {
        _ if (0..n).contains(&i) => Some(i),
        MIRRORED if i < 0 => Some(-i),
        MIRRORED => Some(2 * (n - 1) - i),
        CIRCULAR => Some(i.rem_euclid(n)),
        _ => None,
    }
}

fn cases() -> Vec<Case> {
    let mut cases = vec![];
    for padding in [Padding::Constant(0.0), Padding::Constant(-3.5), Padding::Mirrored, Padding::Circular] {
        for (before, after) in [
            ([0, 0, 0, 0], [1, 1, 0, 0]),
            ([2, 0, 0, 0], [3, 0, 0, 0]),
            ([0, 1, 0, 0], [0, 3, 0, 0]),
            ([4, 3, 2, 1], [1, 2, 2, 1]),
            ([0, 0, 2, 0], [0, 0, 0, 1]),
            ([0, 0, 0, 0], [0, 0, 0, 0]),
        ] {
            for dtype in copy_cases::PLAIN {
                cases.push(Case::new(
                    format!("{dtype}, {padding:?}, {before:?} and {after:?}"),
                    |g, ints| {
                        let x = copy_cases::operand(g, ints, dtype, dtype, &[5, 4, 3, 2]);
                        g.pad(x, before, after, padding);
                    },
                ));
            }
            cases.push(Case::new(format!("permuted, {padding:?}, {before:?} and {after:?}"), |g, _| {
                let x = g.input("x", DType::F32, &[4, 7, 2, 3]);
                let x = g.permute(x, [1, 0, 3, 2]);
                let x = g.slice(x, 0, 1, 5);
                g.pad(x, before, after, padding);
            }));
        }
        cases.push(Case::new(format!("rows of 1100, {padding:?}"), |g, _| {
            let x = g.input("x", DType::F16, &[1100, 2]);
            g.pad(x, [37, 0, 0, 0], [1000, 1, 0, 0], padding);
        }));
    }
    cases.push(Case::new("circular, several times around", |g, _| {
        let x = g.input("x", DType::F32, &[3, 2]);
        g.pad(x, [7, 5, 0, 1], [10, 4, 3, 0], Padding::Circular);
    }));
    cases.push(Case::new("a value around nothing", |g, _| {
        let x = g.input("x", DType::F32, &[0, 2]);
        g.pad(x, [3, 1, 0, 0], [2, 0, 0, 0], Padding::Constant(1.5));
    }));
    cases
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::tests::{check, floats};

    #[test]
    fn the_ways_to_pad_differ_in_what_stands_around() {
        for (padding, expected) in [
            (Padding::Constant(9.0), [9., 9., 1., 2., 3., 9.]),
            (Padding::Mirrored, [3., 2., 1., 2., 3., 2.]),
            (Padding::Circular, [2., 3., 1., 2., 3., 1.]),
        ] {
            let build = |g: &mut Graph| {
                let x = g.input("x", DType::F32, &[3]);
                g.pad(x, [2, 0, 0, 0], [1, 0, 0, 0], padding)
            };
            check(build, &[("x", floats(&[1., 2., 3.]))], &expected);
        }
    }
}
