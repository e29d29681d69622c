//! im2col in three dims: kernel [kw, kh, kd, c·_] and x [w, h, d, c·n] give [kw·kh·kd·c, ow, oh, od·n].

use super::check::{self, Answer, ensure};
use super::im2col::{self, Columns};
use super::window;
use super::{Args, Output, Worker};
use llmrt_plugin::abi::op::Im2col3dParams;
use llmrt_plugin::{NodeView, Reason};

pub fn supports(node: &NodeView<'_>) -> Answer {
    let p = check::params(Im2col3dParams::from_bytes(node.params_bytes()))?;
    let (kernel, x, dtype) = im2col::operands(node, p.dtype)?;
    let (kernel, x, c) = (kernel.ne(), x.ne(), p.n_channels as usize);
    ensure(c > 0, Reason::Param)?;
    ensure(x[3].is_multiple_of(c) && kernel[3].is_multiple_of(c), Reason::Shape)?;
    let columns = columns(kernel, x, &p);
    let [n0, n1, n2] = columns.n_out()?;
    let depth = n2.checked_mul(x[3] / c).ok_or(Reason::Shape)?;
    check::result(node, dtype, [columns.row_len()?, n0, n1, depth])
}

pub fn compute(w: &mut Worker<'_>, a: &Args, out: Output<'_>) {
    let p = a.params(Im2col3dParams::from_bytes);
    columns(a.arg(0).ne, a.arg(1).ne, &p).compute(w, a, out);
}

fn columns(kernel: [usize; 4], x: [usize; 4], p: &Im2col3dParams) -> Columns {
    let windows = window::windows(
        kernel,
        [p.stride0, p.stride1, p.stride2],
        [p.pad0, p.pad1, p.pad2],
        [p.dilation0, p.dilation1, p.dilation2],
    );
    Columns { windows, n_in: [x[0], x[1], x[2]], n_dims: 3, c: p.n_channels as usize }
}
