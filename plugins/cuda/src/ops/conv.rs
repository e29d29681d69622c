//! Convolutions in one, two and three dims, forth and back: kernels/conv.cu, a thread per number.

use super::check::{self, Answer, ensure, numbers, params};
use super::window::{Windows, windows};
use super::{Form, blocks, missing, source};
use crate::call::{Args, Call, address};
use llmrt_plugin::abi::op::*;
use llmrt_plugin::{DType, NodeView, Op, Reason, Result, TensorView};

pub const CONVOLUTION: Form = (supports, compute);
pub const TRANSPOSED: Form = (supports_transposed, transposed);

/// What a convolution's kernel does, and how channels and batches are laid out in kernel, x and y.
struct Shape {
    windows: Windows,
    /// Dims of space.
    n_dims: usize,
    /// Channels of x that one of y is made of, of y, and batches.
    c_in: usize,
    c_out: usize,
    n_batch: usize,
    is_depthwise: bool,
}

/// From the params and the dims of kernel and x.
fn shape(node: &NodeView<'_>, kernel: [usize; 4], x: [usize; 4]) -> Result<Shape, Reason> {
    let (bytes, op) = (node.params_bytes(), node.op().ok_or(Reason::Op)?);
    let is_depthwise = matches!(op, Op::Conv1dDw | Op::Conv2dDw);
    Ok(match op {
        Op::Conv1d | Op::Conv1dDw => {
            let p = params(Conv1dParams::from_bytes(bytes))?;
            ensure(x[3] == 1 && kernel[3] == 1, Reason::Shape)?;
            let windows = windows(kernel, [p.stride], [p.pad], [p.dilation]);
            let c_in = if is_depthwise { 1 } else { x[1] };
            ensure(kernel[1] == c_in && (!is_depthwise || kernel[2] == x[1]), Reason::Shape)?;
            Shape { windows, n_dims: 1, c_in, c_out: kernel[2], n_batch: x[2], is_depthwise }
        }
        Op::Conv2d | Op::Conv2dDw => {
            let p = params(Conv2dParams::from_bytes(bytes))?;
            let (stride, pad) = ([p.stride0, p.stride1], [p.pad0, p.pad1]);
            let windows = windows(kernel, stride, pad, [p.dilation0, p.dilation1]);
            let c_in = if is_depthwise { 1 } else { x[2] };
            ensure(kernel[2] == c_in && (!is_depthwise || kernel[3] == x[2]), Reason::Shape)?;
            Shape { windows, n_dims: 2, c_in, c_out: kernel[3], n_batch: x[3], is_depthwise }
        }
        _ => {
            let p = params(Conv3dParams::from_bytes(bytes))?;
            let [c_in, c_out, n_batch] = [p.n_channels, p.n_out, p.n_batch].map(|n| n as usize);
            ensure(c_in.checked_mul(c_out) == Some(kernel[3]), Reason::Shape)?;
            ensure(c_in.checked_mul(n_batch) == Some(x[3]), Reason::Shape)?;
            let (stride, pad) = ([p.stride0, p.stride1, p.stride2], [p.pad0, p.pad1, p.pad2]);
            let windows = windows(kernel, stride, pad, [p.dilation0, p.dilation1, p.dilation2]);
            Shape { windows, n_dims: 3, c_in, c_out, n_batch, is_depthwise }
        }
    })
}

/// Dims of a tensor of `n_dims` dims of space, its channels and batches.
fn dims(n_dims: usize, space: [usize; 3], channels: usize, n_batch: usize) -> Option<[usize; 4]> {
    Some(match n_dims {
        1 => [space[0], channels, n_batch, 1],
        2 => [space[0], space[1], channels, n_batch],
        _ => [space[0], space[1], space[2], channels.checked_mul(n_batch)?],
    })
}

/// `struct Image` of the kernels.
pub fn image(args: Args, t: &TensorView<'_>, n_dims: usize, channels: usize) -> Result<Args> {
    let (ne, nb) = (t.ne(), t.nb());
    let n = (0..3).map(|d| if d < n_dims { ne[d] } else { 1 });
    let steps = (0..3).map(|d| if d < n_dims { nb[d] } else { 0 });
    // In three dims channels and batches share one.
    let batch = if n_dims == 3 { channels * nb[3] } else { nb[n_dims + 1] };
    let at = if t.n_elements() == 0 { 0 } else { address(t)? };
    let args = n.chain(steps).fold(args.address(at), Args::count);
    Ok(args.count(channels).count(nb[n_dims]).count(batch).count(t.dtype_id() as usize))
}

/// Source 0: a kernel without gaps.
fn kernel<'a>(node: &NodeView<'a>) -> Result<TensorView<'a>, Reason> {
    let kernel = numbers(node, 0)?;
    ensure(kernel.is_contiguous(), Reason::Stride)?;
    Ok(kernel)
}

/// The kernel's address, dtype and bytes of a number.
fn kernel_args(args: Args, kernel: &TensorView<'_>) -> Result<Args> {
    let at = if kernel.n_elements() == 0 { 0 } else { address(kernel)? };
    let bytes = kernel.dtype().map_or(0, DType::block_bytes);
    Ok(args.address(at).count(kernel.dtype_id() as usize).count(bytes))
}

fn supports(node: &NodeView<'_>) -> Answer {
    let (kernel, x) = (kernel(node)?, check::of(node, 1, DType::F32)?.ne());
    let shape = shape(node, kernel.ne(), x)?;
    let space = shape.windows.n_out(std::array::from_fn(|d| if d < shape.n_dims { x[d] } else { 1 }))?;
    let ne = dims(shape.n_dims, space, shape.c_out, shape.n_batch).ok_or(Reason::Shape)?;
    check::result(node, Some(DType::F32), ne)
}

fn compute(call: &mut Call<'_>, node: &NodeView<'_>) -> Result<()> {
    let (kernel, x, y) = (source(node, 0)?, source(node, 1)?, node.dst());
    let shape = shape(node, kernel.ne(), x.ne()).map_err(|_| missing())?;
    let x_channels = if shape.is_depthwise { shape.c_out } else { shape.c_in };
    let args = image(Args::default(), &x, shape.n_dims, x_channels)?;
    let args = shape.windows.put(image(args, &y, shape.n_dims, shape.c_out)?);
    let args = kernel_args(args, &kernel)?.count(shape.c_in).count(y.n_elements());
    let args = args.int(shape.is_depthwise.into());
    call.launch(("conv", "convolution"), blocks(y.n_elements(), 128), 128, args)
}

/// Dims of space and strides of a transposed convolution; no padding, no dilation.
fn strides(node: &NodeView<'_>) -> Result<(usize, [usize; 2]), Reason> {
    let bytes = node.params_bytes();
    if node.op() == Some(Op::ConvTranspose1d) {
        let p = params(Conv1dParams::from_bytes(bytes))?;
        ensure(p.pad == 0 && p.dilation == 1 && p.stride > 0, Reason::Param)?;
        return Ok((1, [p.stride as usize, 1]));
    }
    let p = params(Conv2dParams::from_bytes(bytes))?;
    ensure([p.pad0, p.pad1, p.dilation0, p.dilation1] == [0, 0, 1, 1], Reason::Param)?;
    ensure(p.stride0 > 0 && p.stride1 > 0, Reason::Param)?;
    Ok((2, [p.stride0 as usize, p.stride1 as usize]))
}

fn supports_transposed(node: &NodeView<'_>) -> Answer {
    let (n_dims, stride) = strides(node)?;
    let (kernel, x) = (kernel(node)?.ne(), check::of(node, 1, DType::F32)?.ne());
    ensure(kernel[n_dims + 1] == x[n_dims], Reason::Shape)?;
    ensure(n_dims == 2 || (kernel[3] == 1 && x[3] == 1), Reason::Shape)?;
    let covered = |d: usize| {
        let apart = x[d].checked_sub(1)?.checked_mul(stride[d])?;
        apart.checked_add(kernel[d])
    };
    let covered = |d: usize| if d < n_dims { covered(d).ok_or(Reason::Shape) } else { Ok(1) };
    let ne = dims(n_dims, [covered(0)?, covered(1)?, 1], kernel[n_dims], x[n_dims + 1]);
    check::result(node, Some(DType::F32), ne.ok_or(Reason::Shape)?)
}

fn transposed(call: &mut Call<'_>, node: &NodeView<'_>) -> Result<()> {
    let (kernel, x, y) = (source(node, 0)?, source(node, 1)?, node.dst());
    let (n_dims, stride) = strides(node).map_err(|_| missing())?;
    let args = image(Args::default(), &x, n_dims, x.ne()[n_dims])?;
    let args = kernel_args(image(args, &y, n_dims, kernel.ne()[n_dims])?, &kernel)?;
    let taps = [kernel.ne()[0], if n_dims == 2 { kernel.ne()[1] } else { 1 }];
    let args = taps.into_iter().chain(stride).fold(args, Args::count).count(y.n_elements());
    call.launch(("conv", "conv_transpose"), blocks(y.n_elements(), 128), 128, args)
}
