//! y = x with elements around it: a value, x mirrored at its ends, or x again and again.

use super::check::{self, Answer, ensure};
use super::moves::{self, Element};
use super::{Args, Output, Worker};
use llmrt_plugin::abi::op::PadParams;
use llmrt_plugin::{NodeView, Reason};

const CONSTANT: u32 = 0;
const MIRRORED: u32 = 1;
const CIRCULAR: u32 = 2;

pub fn supports(node: &NodeView<'_>) -> Answer {
    let p = check::params(PadParams::from_bytes(node.params_bytes()))?;
    let (x, dtype) = moves::plain(node, 0)?;
    let (before, after) = amounts(&p);
    let mut ne = x.ne();
    for d in 0..4 {
        let most = match p.mode {
            CONSTANT => usize::MAX,
            MIRRORED => ne[d].saturating_sub(1),
            CIRCULAR => {
                if ne[d] == 0 {
                    0
                } else {
                    usize::MAX
                }
            }
            _ => return Err(Reason::Param),
        };
        ensure(before[d] <= most && after[d] <= most, Reason::Shape)?;
        ne[d] = before[d].checked_add(after[d]).and_then(|n| n.checked_add(ne[d])).ok_or(Reason::Shape)?;
    }
    check::result(node, dtype, ne)
}

/// Elements before and after each dim.
fn amounts(p: &PadParams) -> ([usize; 4], [usize; 4]) {
    let before = [p.before0, p.before1, p.before2, p.before3];
    let after = [p.after0, p.after1, p.after2, p.after3];
    (before.map(|n| n as usize), after.map(|n| n as usize))
}

pub fn compute(w: &mut Worker<'_>, a: &Args, out: Output<'_>) {
    let p = a.params(PadParams::from_bytes);
    let (x, before) = (a.arg(0), amounts(&p).0);
    let (n_y, n, start) = (a.dst.ne[0], x.ne[0], before[0]);
    let value = Element::new(w.isa, a.dst.dtype, p.value);
    moves::each_row(a, out, |mut y, at| {
        let from = |d: usize| source(p.mode, at[d - 1], before[d], x.ne[d]);
        let (Some(i1), Some(i2), Some(i3)) = (from(1), from(2), from(3)) else {
            return y.fill(0..n_y, &value);
        };
        y.copy(start, x, [i1, i2, i3], 0, n);
        if p.mode == CONSTANT {
            y.fill(0..start, &value);
            return y.fill(start + n..n_y, &value);
        }
        for i in (0..start).chain(start + n..n_y) {
            if let Some(i0) = source(p.mode, i, start, n) {
                y.copy(i, x, [i1, i2, i3], i0, 1);
            }
        }
    });
}

/// The element of a dim of `n` that stands at place `i` of the result; `None`: the value.
fn source(mode: u32, i: usize, before: usize, n: usize) -> Option<usize> {
    let i = i as i64 - before as i64;
    let (last, n) = (n as i64 - 1, n as i64);
    let from = match mode {
        _ if (0..n).contains(&i) => i,
        MIRRORED if i < 0 => -i,
        MIRRORED => 2 * last - i,
        CIRCULAR => i.rem_euclid(n),
        _ => return None,
    };
    Some(from as usize)
}
