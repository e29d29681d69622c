//! y = kernel [k, 1, c] over x [l, c, n], each channel by itself: [ol, c, n].

use super::check::{self, Answer, ensure};
use super::convolution::{self, Convolution};
use super::window;
use super::{Args, Output, Worker};
use llmrt_plugin::abi::op::Conv1dParams;
use llmrt_plugin::{DType, NodeView, Reason};

pub fn supports(node: &NodeView<'_>) -> Answer {
    let p = check::params(Conv1dParams::from_bytes(node.params_bytes()))?;
    let (kernel, x) = convolution::operands(node)?;
    let (kernel, x) = (kernel.ne(), x.ne());
    ensure(kernel[1..] == [1, x[1], 1] && x[3] == 1, Reason::Shape)?;
    let [length, ..] = convolution(kernel, x, &p).n_out()?;
    check::result(node, DType::F32, [length, x[1], x[2], 1])
}

pub fn compute(w: &mut Worker<'_>, a: &Args, out: Output<'_>) {
    let p = a.params(Conv1dParams::from_bytes);
    convolution::compute(w, a, out, &convolution(a.arg(0).ne, a.arg(1).ne, &p));
}

fn convolution(kernel: [usize; 4], x: [usize; 4], p: &Conv1dParams) -> Convolution {
    Convolution {
        windows: window::windows(kernel, [p.stride], [p.pad], [p.dilation]),
        n_in: [x[0], 1, 1],
        n_dims: 1,
        c_in: 1,
        c_out: 1,
        n_groups: x[1],
        n_batch: x[2],
    }
}
