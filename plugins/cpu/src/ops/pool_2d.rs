//! y[o] = the largest or the mean of a window of x [w, h, ...]; the mean is over the padding as well.

use super::check::{self, Answer, ensure};
use super::window::Window;
use super::{Args, Output, Worker, rows};
use llmrt_plugin::abi::op::PoolParams;
use llmrt_plugin::{DType, NodeView, Reason};

/// Kind: the largest of a window.
const MAX: u32 = 0;
/// Kind: the mean of a window.
const AVERAGE: u32 = 1;

pub fn supports(node: &NodeView<'_>) -> Answer {
    let (p, ne) = operands(node)?;
    ensure(p.kernel1 > 0, Reason::Param)?;
    let [w0, w1] = windows(&p);
    check::result(node, DType::F32, [w0.n_out(ne[0])?, w1.n_out(ne[1])?, ne[2], ne[3]])
}

/// Params with a known kind, and the shape of x.
pub fn operands(node: &NodeView<'_>) -> Result<(PoolParams, [usize; 4]), Reason> {
    let p = check::params(PoolParams::from_bytes(node.params_bytes()))?;
    ensure(p.kind <= AVERAGE && p.kernel0 > 0, Reason::Param)?;
    Ok((p, check::numbers(node, 0)?.ne()))
}

fn windows(p: &PoolParams) -> [Window; 2] {
    [
        Window::new(p.kernel0 as usize, p.stride0, p.pad0, 1),
        Window::new(p.kernel1 as usize, p.stride1, p.pad1, 1),
    ]
}

pub fn compute(w: &mut Worker<'_>, a: &Args, out: Output<'_>) {
    let p = a.params(PoolParams::from_bytes);
    let [w0, w1] = windows(&p);
    pool(w, a, out, p.kind, [w0, w1], |_| (w0.size * w1.size) as f32);
}

/// Pools rows of x; `divisor` of a mean at a position in dim 0.
pub fn pool(
    w: &mut Worker<'_>,
    a: &Args,
    out: Output<'_>,
    kind: u32,
    [w0, w1]: [Window; 2],
    divisor: impl Fn(usize) -> f32,
) {
    let x = a.arg(0);
    for (at, part, y) in out.pieces() {
        let y = y.floats();
        y.fill(if kind == MAX { f32::MIN } else { 0.0 });
        // The part of a row of x under any tap of the piece.
        let start = (part.start * w0.stride).saturating_sub(w0.pad).min(x.ne[0]);
        let end = ((part.end - 1) * w0.stride + w0.size).saturating_sub(w0.pad).clamp(start, x.ne[0]);
        let room = w.scratch.rows.take::<f32>(end - start);
        for tap1 in w1.taps(at[0], x.ne[1]) {
            let seen = rows::read(w.isa, x, [w1.at(at[0], tap1), at[1], at[2]], start..end, room);
            for tap0 in w0.taps(part.end - 1, x.ne[0]).start..w0.taps(part.start, x.ne[0]).end {
                let inside = w0.inside(tap0, x.ne[0], part.clone());
                if inside.is_empty() {
                    continue;
                }
                let seen = seen[w0.at(inside.start, tap0) - start..].iter().step_by(w0.stride);
                let y = y[inside.start - part.start..inside.end - part.start].iter_mut();
                match kind {
                    MAX => y.zip(seen).for_each(|(y, v)| *y = y.max(*v)),
                    _ => y.zip(seen).for_each(|(y, v)| *y += v),
                }
            }
        }
        if kind == AVERAGE {
            y.iter_mut().zip(part).for_each(|(y, o)| *y /= divisor(o));
        }
    }
}
