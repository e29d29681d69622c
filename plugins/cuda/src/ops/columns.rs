//! The elements under each position of a kernel as rows, and columns added up to a signal: kernels/conv.cu.

use super::check::{self, Answer, ensure, given, numbers, params};
use super::conv::image;
use super::window::{Windows, windows};
use super::{Form, blocks, missing, source};
use crate::call::{Args, Call};
use llmrt_plugin::abi::op::{Col2im1dParams, Im2col3dParams, Im2colParams};
use llmrt_plugin::{DType, NodeView, Op, Reason, Result};

pub const IM2COL: Form = (supports, compute);
pub const COL2IM_1D: Form = (supports_fold, fold);

/// Windows, dims of space, channels, and the dims and dtype of the result.
struct Shape {
    windows: Windows,
    n_dims: usize,
    channels: usize,
    positions: [usize; 3],
    ne: [usize; 4],
    dtype: u32,
}

fn shape(node: &NodeView<'_>) -> Result<Shape, Reason> {
    let (kernel, x, bytes) = (given(node, 0)?.ne(), numbers(node, 1)?.ne(), node.params_bytes());
    if node.op() == Some(Op::Im2col3d) {
        let p = params(Im2col3dParams::from_bytes(bytes))?;
        let c = p.n_channels as usize;
        ensure(c > 0 && x[3].is_multiple_of(c) && kernel[3].is_multiple_of(c), Reason::Shape)?;
        let (stride, pad) = ([p.stride0, p.stride1, p.stride2], [p.pad0, p.pad1, p.pad2]);
        let windows = windows(kernel, stride, pad, [p.dilation0, p.dilation1, p.dilation2]);
        let positions = windows.n_out([x[0], x[1], x[2]])?;
        let row = windows.n_taps()?.checked_mul(c).ok_or(Reason::Shape)?;
        let outer = positions[2].checked_mul(x[3] / c).ok_or(Reason::Shape)?;
        let ne = [row, positions[0], positions[1], outer];
        return Ok(Shape { windows, n_dims: 3, channels: c, positions, ne, dtype: p.dtype });
    }
    let p = params(Im2colParams::from_bytes(bytes))?;
    let (n_dims, windows) = match p.is_2d {
        0 => (1, windows(kernel, [p.stride0], [p.pad0], [p.dilation0])),
        1 => {
            let (stride, pad) = ([p.stride0, p.stride1], [p.pad0, p.pad1]);
            (2, windows(kernel, stride, pad, [p.dilation0, p.dilation1]))
        }
        _ => return Err(Reason::Param),
    };
    let channels = x[n_dims];
    ensure(kernel[n_dims] == channels && (n_dims == 2 || x[3] == 1), Reason::Shape)?;
    let positions = windows.n_out([x[0], if n_dims == 2 { x[1] } else { 1 }, 1])?;
    let row = windows.n_taps()?.checked_mul(channels).ok_or(Reason::Shape)?;
    let ne = match n_dims {
        1 => [row, positions[0], x[2], 1],
        _ => [row, positions[0], positions[1], x[3]],
    };
    Ok(Shape { windows, n_dims, channels, positions, ne, dtype: p.dtype })
}

fn supports(node: &NodeView<'_>) -> Answer {
    let shape = shape(node)?;
    let dtype = DType::from_id(shape.dtype);
    ensure(matches!(dtype, Some(DType::F16 | DType::F32)), Reason::Param)?;
    check::result(node, dtype, shape.ne)
}

fn compute(call: &mut Call<'_>, node: &NodeView<'_>) -> Result<()> {
    let (shape, y) = (shape(node).map_err(|_| missing())?, node.dst());
    let args = image(Args::default(), &source(node, 1)?, shape.n_dims, shape.channels)?;
    let args = shape.windows.put(args.tensor(&y)?);
    let args = shape.positions.into_iter().fold(args, Args::count);
    call.launch(("conv", "im2col"), blocks(y.n_elements(), 256), 256, args)
}

fn supports_fold(node: &NodeView<'_>) -> Answer {
    let p = params(Col2im1dParams::from_bytes(node.params_bytes()))?;
    let x = numbers(node, 0)?;
    let ([rows, n, ..], c, stride) = (x.ne(), p.n_channels as usize, p.stride as usize);
    ensure(x.ne()[2..] == [1, 1] && x.is_contiguous(), Reason::Shape)?;
    ensure(stride > 0 && c > 0 && rows.is_multiple_of(c), Reason::Param)?;
    let apart = n.checked_sub(1).and_then(|n| n.checked_mul(stride));
    let whole = apart.and_then(|apart| apart.checked_add(rows / c));
    let n_out = whole.and_then(|whole| whole.checked_sub(2 * p.pad as usize)).filter(|n| *n > 0);
    check::result(node, x.dtype(), [n_out.ok_or(Reason::Shape)?, c, 1, 1])
}

fn fold(call: &mut Call<'_>, node: &NodeView<'_>) -> Result<()> {
    let p = Col2im1dParams::from_bytes(node.params_bytes()).unwrap_or_default();
    let y = node.dst();
    let args = Args::default().tensor(&source(node, 0)?)?.tensor(&y)?;
    let args = args.count(p.stride as usize).count(p.pad as usize);
    call.launch(("conv", "col2im_1d"), blocks(y.n_elements(), 256), 256, args)
}
