//! y[o, c] = Σ x[k + K·c, i] over all i·stride + k = o + pad, in f32.

use super::check::{self, Answer, ensure};
use super::{Args, Output, Worker, rows};
use llmrt_plugin::abi::op::Col2im1dParams;
use llmrt_plugin::{NodeView, Reason};

pub fn supports(node: &NodeView<'_>) -> Answer {
    let p = check::params(Col2im1dParams::from_bytes(node.params_bytes()))?;
    let x = check::numbers(node, 0)?;
    let (ne, c) = (x.ne(), p.n_channels as usize);
    ensure(p.stride > 0 && c > 0, Reason::Param)?;
    ensure(ne[2..] == [1, 1] && ne[0].is_multiple_of(c), Reason::Shape)?;
    ensure(x.is_contiguous(), Reason::Stride)?;
    let whole = ne[1]
        .checked_sub(1)
        .and_then(|n| n.checked_mul(p.stride as usize))
        .and_then(|n| n.checked_add(ne[0] / c));
    let n_out = whole.and_then(|n| n.checked_sub(2 * p.pad as usize)).filter(|&n| n > 0);
    check::result(node, x.dtype().ok_or(Reason::Type)?, [n_out.ok_or(Reason::Shape)?, c, 1, 1])
}

pub fn compute(w: &mut Worker<'_>, a: &Args, out: Output<'_>) {
    let p = a.params(Col2im1dParams::from_bytes);
    let (stride, pad) = (p.stride as usize, p.pad as usize);
    let x = a.arg(0);
    let k = x.ne[0] / a.dst.ne[1];
    for ([c, ..], part, y) in out.pieces() {
        let sums = w.scratch.sums.zeroed(part.len());
        let room = w.scratch.rows.take::<f32>(k);
        let whole = part.start + pad..part.end + pad;
        let first = (whole.start + 1).saturating_sub(k).div_ceil(stride);
        for i in first..x.ne[1].min((whole.end - 1) / stride + 1) {
            // The elements of this column that fall into the piece.
            let from = whole.start.saturating_sub(i * stride);
            let until = k.min(whole.end - i * stride);
            let column = rows::read(w.isa, x, [i, 0, 0], c * k + from..c * k + until, room);
            let to = &mut sums[i * stride + from - whole.start..];
            to.iter_mut().zip(column).for_each(|(sum, v)| *sum += v);
        }
        y.write(w.isa, sums);
    }
}
