//! y = kernel [kw, kh, c_in, c_out] over x [w, h, c_in, n]: [ow, oh, c_out, n].

use super::check::{self, Answer, ensure};
use super::convolution::{self, Convolution};
use super::window::{self, Window};
use super::{Args, Output, Worker};
use llmrt_plugin::abi::op::Conv2dParams;
use llmrt_plugin::{DType, NodeView, Reason};

pub fn supports(node: &NodeView<'_>) -> Answer {
    let p = check::params(Conv2dParams::from_bytes(node.params_bytes()))?;
    let (kernel, x) = convolution::operands(node)?;
    let (kernel, x) = (kernel.ne(), x.ne());
    ensure(kernel[2] == x[2], Reason::Shape)?;
    let [width, height, _] = convolution(kernel, x, &p).n_out()?;
    check::result(node, DType::F32, [width, height, kernel[3], x[3]])
}

pub fn compute(w: &mut Worker<'_>, a: &Args, out: Output<'_>) {
    let p = a.params(Conv2dParams::from_bytes);
    convolution::compute(w, a, out, &convolution(a.arg(0).ne, a.arg(1).ne, &p));
}

fn convolution(kernel: [usize; 4], x: [usize; 4], p: &Conv2dParams) -> Convolution {
    Convolution {
        windows: windows(kernel, p),
        n_in: [x[0], x[1], 1],
        n_dims: 2,
        c_in: x[2],
        c_out: kernel[3],
        n_groups: 1,
        n_batch: x[3],
    }
}

/// How a kernel moves in two dims.
pub fn windows(kernel: [usize; 4], p: &Conv2dParams) -> [Window; 3] {
    window::windows(kernel, [p.stride0, p.stride1], [p.pad0, p.pad1], [p.dilation0, p.dilation1])
}
