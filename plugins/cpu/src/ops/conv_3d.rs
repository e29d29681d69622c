//! y = kernel [kw, kh, kd, c_in·c_out] over x [w, h, d, c_in·n]: [ow, oh, od, c_out·n].

use super::check::{self, Answer, ensure};
use super::convolution::{self, Convolution};
use super::window;
use super::{Args, Output, Worker};
use llmrt_plugin::abi::op::Conv3dParams;
use llmrt_plugin::{DType, NodeView, Reason};

pub fn supports(node: &NodeView<'_>) -> Answer {
    let p = check::params(Conv3dParams::from_bytes(node.params_bytes()))?;
    let (kernel, x) = convolution::operands(node)?;
    let c = convolution(kernel.ne(), x.ne(), &p);
    ensure(c.c_in.checked_mul(c.c_out) == Some(kernel.ne()[3]), Reason::Shape)?;
    ensure(c.c_in.checked_mul(c.n_batch) == Some(x.ne()[3]), Reason::Shape)?;
    let [n0, n1, n2] = c.n_out()?;
    check::result(node, DType::F32, [n0, n1, n2, c.c_out.checked_mul(c.n_batch).ok_or(Reason::Shape)?])
}

pub fn compute(w: &mut Worker<'_>, a: &Args, out: Output<'_>) {
    let p = a.params(Conv3dParams::from_bytes);
    convolution::compute(w, a, out, &convolution(a.arg(0).ne, a.arg(1).ne, &p));
}

fn convolution(kernel: [usize; 4], x: [usize; 4], p: &Conv3dParams) -> Convolution {
    Convolution {
        windows: window::windows(
            kernel,
            [p.stride0, p.stride1, p.stride2],
            [p.pad0, p.pad1, p.pad2],
            [p.dilation0, p.dilation1, p.dilation2],
        ),
        n_in: [x[0], x[1], x[2]],
        n_dims: 3,
        c_in: p.n_channels as usize,
        c_out: p.n_out as usize,
        n_groups: 1,
        n_batch: p.n_batch as usize,
    }
}
