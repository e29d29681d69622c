//! y = the elements of x under each position of a kernel, as rows: taps before channels.

use super::check::{self, Answer, ensure};
use super::source;
use super::steps::has;
use crate::call::{Call, run};
use crate::chip::Chip;
use crate::library::Cann;
use crate::operand::Operand;
use crate::sys::*;
use llmrt_plugin::abi::op::Im2colParams;
use llmrt_plugin::{DType, NodeView, Reason, Result};

pub fn supports(cann: &Cann, chip: &Chip, node: &NodeView<'_>) -> Answer {
    has!(cann, math.aclnnIm2col, math.aclnnCast, math.aclnnInplaceCopy)?;
    let p = check::params(Im2colParams::from_bytes(node.params_bytes()))?;
    let (kernel, x) = (check::given(node, 0)?.ne(), check::floats(chip, node, 1)?.ne());
    let channels = if p.is_2d == 1 { kernel[2] == x[2] } else { kernel[1] == x[1] && x[3] == 1 };
    ensure(p.is_2d <= 1 && channels, Reason::Shape)?;
    let two_d = [p.stride1, p.dilation1].iter().all(|n| *n > 0) || p.is_2d == 0;
    ensure(p.stride0 > 0 && p.dilation0 > 0 && two_d, Reason::Param)?;
    let dtype = node.dst().dtype();
    ensure(matches!(dtype, Some(DType::F32 | DType::F16)), Reason::Type)?;
    check::result(node, dtype, node.dst().ne())
}

pub fn compute(call: &mut Call<'_>, node: &NodeView<'_>) -> Result<()> {
    let p = Im2colParams::from_bytes(node.params_bytes()).unwrap_or_default();
    let kernel = node.src(0).ok_or_else(super::missing)?.ne().map(|n| n as i64);
    let (x, y) = (source(node, 1)?, Operand::of(&node.dst())?);
    // A signal is an image of height 1.
    let (x, y, k, stride, pad, dilation) = match p.is_2d {
        1 => (
            x,
            y,
            [kernel[1], kernel[0]],
            [p.stride1, p.stride0],
            [p.pad1, p.pad0],
            [p.dilation1, p.dilation0],
        ),
        _ => (
            x.flat(3).with_dim(1),
            y.flat(3).with_dim(2),
            [1, kernel[0]],
            [1, p.stride0],
            [0, p.pad0],
            [1, p.dilation0],
        ),
    };
    let x = call.dense(&x, ACL_FLOAT)?;
    let [row, n0, n1, n] = [0, 1, 2, 3].map(|d| y.ne[d]);
    let columns = call.temporary(ACL_FLOAT, &[n0 * n1, row, n])?;
    let two = |v: [u32; 2]| v.map(i64::from);
    let (k, dilation) = (call.ints(&k)?, call.ints(&two(dilation))?);
    let (pad, stride) = (call.ints(&two(pad))?, call.ints(&two(stride))?);
    let (x, out) = (call.image(&x)?, call.tensor(&columns)?);
    run!(call, math.aclnnIm2col(x, k, dilation, pad, stride, out))?;
    let columns = columns.reshape(&[n0, n1, row, n]).permute(&[2, 0, 1, 3]);
    call.copy(&columns, &y)
}
