//! Images made smaller or larger: kernels/image.cu, a thread per number.

use super::check::{self, Answer, ensure, numbers, params};
use super::window::Window;
use super::{Form, blocks, missing, source};
use crate::call::{Args, Call};
use llmrt_plugin::abi::op::{PoolParams, UpscaleParams};
use llmrt_plugin::{DType, NodeView, Op, Reason, Result};

pub const POOL: Form = (supports_pool, pool);
pub const UPSCALE: Form = (supports_upscale, upscale);

/// Windows of dims 0 and 1, and whether the mean is computed.
fn pooled(node: &NodeView<'_>) -> Result<([Window; 2], bool), Reason> {
    let p = params(PoolParams::from_bytes(node.params_bytes()))?;
    let is_2d = node.op() != Some(Op::Pool1d);
    ensure(p.kind <= 1 && p.kernel0 > 0 && (!is_2d || p.kernel1 > 0), Reason::Param)?;
    let window = |size: u32, stride: u32, pad: u32| {
        let [size, stride, pad] = [size, stride, pad].map(|n| n as usize);
        Window { size, stride, pad, dilation: 1 }
    };
    let second = match node.op() {
        Some(Op::Pool1d) => window(1, 1, 0),
        _ => window(p.kernel1, p.stride1, p.pad1),
    };
    Ok(([window(p.kernel0, p.stride0, p.pad0), second], p.kind == 1))
}

fn supports_pool(node: &NodeView<'_>) -> Answer {
    let ([w0, w1], _) = pooled(node)?;
    let [n0, n1, n2, n3] = numbers(node, 0)?.ne();
    check::result(node, Some(DType::F32), [w0.n_out(n0)?, w1.n_out(n1)?, n2, n3])
}

fn pool(call: &mut Call<'_>, node: &NodeView<'_>) -> Result<()> {
    let ([w0, w1], is_mean) = pooled(node).map_err(|_| missing())?;
    let y = node.dst();
    let args = Args::default().tensor(&source(node, 0)?)?.tensor(&y)?;
    let numbers = [w0.size, w1.size, w0.stride, w1.stride, w0.pad, w1.pad];
    let args = numbers.into_iter().fold(args, Args::count);
    let args = args.int(is_mean.into()).int((node.op() == Some(Op::Pool2d)).into());
    call.launch(("image", "pool"), blocks(y.n_elements(), 256), 256, args)
}

fn supports_upscale(node: &NodeView<'_>) -> Answer {
    let p = params(UpscaleParams::from_bytes(node.params_bytes()))?;
    ensure(p.align_corners <= 1 && p.mode <= 3, Reason::Param)?;
    let (x, ne) = (numbers(node, 0)?, [p.ne0, p.ne1, p.ne2, p.ne3].map(|n| n as usize));
    ensure(!x.ne().contains(&0) || ne.contains(&0), Reason::Shape)?;
    check::result(node, x.dtype(), ne)
}

fn upscale(call: &mut Call<'_>, node: &NodeView<'_>) -> Result<()> {
    let p = UpscaleParams::from_bytes(node.params_bytes()).unwrap_or_default();
    let (x, y) = (source(node, 0)?, node.dst());
    let (from, to) = (x.ne(), y.ne());
    let mut scale: [f32; 4] = std::array::from_fn(|d| to[d] as f32 / from[d] as f32);
    if p.align_corners == 1 {
        for d in (0..2).filter(|&d| to[d] > 1 && from[d] > 1) {
            scale[d] = (to[d] - 1) as f32 / (from[d] - 1) as f32;
        }
    }
    let args = scale.into_iter().fold(Args::default().tensor(&x)?.tensor(&y)?.int(p.mode), Args::float);
    let args = args.float(if p.align_corners == 1 { 0.0 } else { 0.5 });
    let kernel = if p.mode == 3 { "upscale_antialiased" } else { "upscale" };
    call.launch(("image", kernel), blocks(y.n_elements(), 128), 128, args)
}
