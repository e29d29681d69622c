//! y = kernel [kw, kh, 1, c] over x [w, h, c, n], each channel by itself: [ow, oh, c, n].

use super::check::{self, Answer, ensure};
use super::conv_2d::windows;
use super::convolution::{self, Convolution};
use super::{Args, Output, Worker};
use llmrt_plugin::abi::op::Conv2dParams;
use llmrt_plugin::{DType, NodeView, Reason};

pub fn supports(node: &NodeView<'_>) -> Answer {
    let p = check::params(Conv2dParams::from_bytes(node.params_bytes()))?;
    let (kernel, x) = convolution::operands(node)?;
    let (kernel, x) = (kernel.ne(), x.ne());
    ensure(kernel[2..] == [1, x[2]], Reason::Shape)?;
    let [width, height, _] = convolution(kernel, x, &p).n_out()?;
    check::result(node, DType::F32, [width, height, x[2], x[3]])
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
        c_in: 1,
        c_out: 1,
        n_groups: x[2],
        n_batch: x[3],
    }
}
