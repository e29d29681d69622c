//! pool_1d, pool_2d: the largest or the mean of windows of x [w, h, c, n]. Padding counts as zeros in the mean
//! of an image and not at all in that of a row; of the largest it is the lowest number.

use super::check::{self, Answer, ensure};
use super::source;
use super::steps::has;
use crate::call::{Call, run};
use crate::chip::Chip;
use crate::library::Cann;
use crate::operand::Operand;
use crate::sys::*;
use llmrt_plugin::abi::op::PoolParams;
use llmrt_plugin::{DType, NodeView, Op, Reason, Result};

const MAX: u32 = 0;

/// Windows in two dims; in one, the other sees each element alone.
fn windows(node: &NodeView<'_>) -> std::result::Result<(u32, [Window; 2]), Reason> {
    let p = check::params(PoolParams::from_bytes(node.params_bytes()))?;
    let window = |size: u32, stride: u32, pad: u32| Window {
        size: size.into(),
        stride: stride.into(),
        pad: pad.into(),
    };
    let first = window(p.kernel0, p.stride0, p.pad0);
    let second =
        if node.op() == Some(Op::Pool1d) { window(1, 1, 0) } else { window(p.kernel1, p.stride1, p.pad1) };
    Ok((p.kind, [first, second]))
}

/// A window that slides over a dim.
#[derive(Clone, Copy)]
struct Window {
    size: i64,
    stride: i64,
    pad: i64,
}

impl Window {
    /// Its positions on `n` elements.
    fn n_out(&self, n: usize) -> Option<usize> {
        let room = (n as i64 + 2 * self.pad).checked_sub(self.size).filter(|room| *room >= 0)?;
        (self.size > 0 && self.stride > 0).then(|| (room / self.stride) as usize + 1)
    }
}

pub fn supports(cann: &Cann, chip: &Chip, node: &NodeView<'_>) -> Answer {
    has!(cann, nn.aclnnAvgPool2d, nn.aclnnMaxPool, math.aclnnInplaceFillScalar, math.aclnnInplaceCopy)?;
    has!(cann, math.aclnnCast)?;
    let (kind, [w0, w1]) = windows(node)?;
    let x = check::floats(chip, node, 0)?;
    let [n0, n1, n2, n3] = x.ne();
    let (Some(out0), Some(out1)) = (w0.n_out(n0), w1.n_out(n1)) else { return Err(Reason::Param) };
    // The library's mean takes no more padding.
    let half = [w0, w1].iter().all(|w| 2 * w.pad <= w.size);
    ensure(kind == MAX || (kind == 1 && half), Reason::Param)?;
    // Other chips have maxima of F16 alone, and round F32 to F16 for means (aclnn_max_pool.cpp and the page of AvgPool2d, ops-nn 9.0).
    // A window of padding alone has F32's lowest number, which is none of F16.
    let inside = [w0, w1].iter().all(|w| w.pad < w.size);
    let halves = kind == MAX && x.dtype() == Some(DType::F16) && inside;
    ensure(chip.f32_products || halves, Reason::Type)?;
    check::result(node, Some(DType::F32), [out0, out1, n2, n3])
}

pub fn compute(call: &mut Call<'_>, node: &NodeView<'_>) -> Result<()> {
    let (x, y) = (source(node, 0)?, Operand::of(&node.dst())?);
    let Ok((kind, [w0, w1])) = windows(node) else { return Ok(()) };
    let dtype = if call.stream.chip.f32_products { ACL_FLOAT } else { ACL_FLOAT16 };
    let (x, placed) = (call.dense(&x, dtype)?, call.place(&y, dtype)?);
    let (kernel, stride) = (call.ints(&[w1.size, w0.size])?, call.ints(&[w1.stride, w0.stride])?);
    if kind != MAX {
        let counts_padding = node.op() == Some(Op::Pool2d);
        let pads = call.ints(&[w1.pad, w0.pad])?;
        let (x, out) = (call.image(&x)?, call.image(&placed)?);
        run!(call, nn.aclnnAvgPool2d(x, kernel, stride, pads, false, counts_padding, 0, 0, out))?;
        return call.store(&placed, &y);
    }
    let x = padded(call, &x, [w0.pad, w1.pad])?;
    let (none, ones) = (call.ints(&[0; 4])?, call.ints(&[1, 1])?);
    let (x, out) = (call.image(&x)?, call.image(&placed)?);
    run!(call, nn.aclnnMaxPool(x, kernel, stride, 0, none, ones, 0, out))?;
    call.store(&placed, &y)
}

/// x with the lowest number around it.
fn padded(call: &mut Call<'_>, x: &Operand, pads: [i64; 2]) -> Result<Operand> {
    if pads == [0, 0] {
        return Ok(x.clone());
    }
    let [n0, n1] = [0, 1].map(|d| x.ne[d] + 2 * pads[d]);
    let all = call.temporary(x.dtype, &[n0, n1, x.ne[2], x.ne[3]])?;
    call.fill(&all, if x.dtype == ACL_FLOAT { f32::MIN } else { -65504.0 })?;
    call.copy(x, &all.slice(0, pads[0], x.ne[0]).slice(1, pads[1], x.ne[1]))?;
    Ok(all)
}
