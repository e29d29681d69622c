//! y[o] = the largest or the mean of x[o·stride - pad ..][.. kernel] over rows; the mean is of what is there, 0 of none.

use super::check::{self, Answer};
use super::pool_2d::{operands, pool};
use super::window::Window;
use super::{Args, Output, Worker};
use llmrt_plugin::abi::op::PoolParams;
use llmrt_plugin::{DType, NodeView};

pub fn supports(node: &NodeView<'_>) -> Answer {
    let (p, ne) = operands(node)?;
    check::result(node, DType::F32, [window(&p).n_out(ne[0])?, ne[1], ne[2], ne[3]])
}

fn window(p: &PoolParams) -> Window {
    Window::new(p.kernel0 as usize, p.stride0, p.pad0, 1)
}

pub fn compute(w: &mut Worker<'_>, a: &Args, out: Output<'_>) {
    let p = a.params(PoolParams::from_bytes);
    let (window, n_in) = (window(&p), a.arg(0).ne[0]);
    pool(w, a, out, p.kind, [window, Window::ONE], |o| window.taps(o, n_in).len().max(1) as f32);
}
