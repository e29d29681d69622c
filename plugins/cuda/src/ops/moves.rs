//! Elements of any dtype without blocks that move, or stay, by where they are: kernels/moves.cu.

use super::check::{self, Answer, ensure, params};
use super::element::element;
use super::rows::{self, plain};
use super::{Form, blocks, source};
use crate::call::{Args, Call};
use llmrt_plugin::abi::op::{IndexFillParams, WinParams};
use llmrt_plugin::{DType, NodeView, Op, Reason, Result};

pub const WINDOWS: Form = (supports_windows, windows);
pub const INDEX_FILL: Form = (supports_fill, fill);

/// Windows that cover an image.
fn n_windows(width: usize, height: usize, window: usize) -> Option<usize> {
    width.div_ceil(window).checked_mul(height.div_ceil(window))
}

fn supports_windows(node: &NodeView<'_>) -> Answer {
    let p = params(WinParams::from_bytes(node.params_bytes()))?;
    let (x, [w, width, height]) = (plain(node, 0)?, [p.window, p.width, p.height].map(|n| n as usize));
    ensure(w > 0, Reason::Param)?;
    let [c, n1, n2, n3] = x.ne();
    if node.op() == Some(Op::WinPart) {
        ensure(n3 == 1 && width == 0 && height == 0, Reason::Shape)?;
        return check::result(node, x.dtype(), [c, w, w, n_windows(n1, n2, w).ok_or(Reason::Shape)?]);
    }
    ensure([n1, n2] == [w, w] && n_windows(width, height, w) == Some(n3), Reason::Shape)?;
    check::result(node, x.dtype(), [c, width, height, 1])
}

fn windows(call: &mut Call<'_>, node: &NodeView<'_>) -> Result<()> {
    let p = WinParams::from_bytes(node.params_bytes()).unwrap_or_default();
    let (x, y) = (source(node, 0)?, node.dst());
    let args = Args::default().tensor(&x)?.optional(None)?.tensor(&y)?;
    let args = args.count(rows::bytes(&x)).count(p.window as usize).count(0).address(0);
    let kernel = if node.op() == Some(Op::WinPart) { "win_part" } else { "win_unpart" };
    call.launch(("moves", kernel), blocks(y.n_elements(), 256), 256, args)
}

fn supports_fill(node: &NodeView<'_>) -> Answer {
    let p = params(IndexFillParams::from_bytes(node.params_bytes()))?;
    ensure(p.dim < 4, Reason::Param)?;
    let (x, indices) = (plain(node, 0)?, check::of(node, 1, DType::I32)?);
    check::vector(&indices, indices.ne()[0])?;
    ensure(element(x.dtype(), p.value).is_some(), Reason::Type)?;
    check::result(node, x.dtype(), x.ne())
}

fn fill(call: &mut Call<'_>, node: &NodeView<'_>) -> Result<()> {
    let p = IndexFillParams::from_bytes(node.params_bytes()).unwrap_or_default();
    let (x, y) = (source(node, 0)?, node.dst());
    let args = Args::default().tensor(&x)?.tensor(&source(node, 1)?)?.tensor(&y)?;
    let args = args.count(rows::bytes(&x)).count(0).count(p.dim as usize);
    let args = args.address(element(x.dtype(), p.value).ok_or_else(super::missing)?);
    call.launch(("moves", "index_fill"), blocks(y.n_elements(), 256), 256, args)
}
