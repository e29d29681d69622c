//! y[i·stride + t, c, n] += kernel[t, c, j] · x[i, j, n]: kernel [k, c_out, c_in], x [l, c_in, n].

use super::check::{self, Answer, ensure};
use super::conv_transpose_2d::{Transposed, stretched};
use super::{Args, Output, Worker, convolution};
use llmrt_plugin::abi::op::Conv1dParams;
use llmrt_plugin::{DType, NodeView, Reason};

pub fn supports(node: &NodeView<'_>) -> Answer {
    let p = check::params(Conv1dParams::from_bytes(node.params_bytes()))?;
    ensure(p.pad == 0 && p.dilation == 1, Reason::Param)?;
    let (kernel, x) = (convolution::kernel(node)?.ne(), check::floats(node, 1)?.ne());
    ensure(kernel[2] == x[1] && kernel[3] == 1 && x[3] == 1, Reason::Shape)?;
    check::result(node, DType::F32, [stretched(x[0], p.stride, kernel[0])?, kernel[1], x[2], 1])
}

pub fn compute(w: &mut Worker<'_>, a: &Args, out: Output<'_>) {
    let p = a.params(Conv1dParams::from_bytes);
    let ([k, c_out, c_in, _], x) = (a.arg(0).ne, a.arg(1));
    let transposed = Transposed {
        taps: [k, 1],
        stride: [p.stride as usize, 1],
        n_in: [x.ne[0], 1],
        c_in,
        c_out,
        nb: [0, x.nb[1], x.nb[2]],
    };
    transposed.compute(w, a, out);
}
