//! Outer products of rows, and triangular systems: kernels/matrix.cu.

use super::check::{self, Answer, ensure, numbers};
use super::{Form, blocks, mul_mat, rows, source};
use crate::call::{Args, Call};
use llmrt_plugin::{DType, NodeView, Reason, Result};

pub const OUT_PROD: Form = (supports_product, product);
pub const SOLVE_TRI: Form = (supports_solve, solve);

fn supports_product(node: &NodeView<'_>) -> Answer {
    let (a, b) = (mul_mat::weights(node, 0)?.ne(), numbers(node, 1)?.ne());
    ensure(a[1] == b[1] && b[2].is_multiple_of(a[2]) && b[3].is_multiple_of(a[3]), Reason::Shape)?;
    check::result(node, Some(DType::F32), [a[0], b[0], b[2], b[3]])
}

fn product(call: &mut Call<'_>, node: &NodeView<'_>) -> Result<()> {
    let a = rows::unpacked(call, &source(node, 0)?)?;
    let args = a.tensor(&source(node, 1)?)?.tensor(&node.dst())?;
    call.launch(("matrix", "out_prod"), blocks(node.dst().n_elements(), 256), 256, args)
}

fn supports_solve(node: &NodeView<'_>) -> Answer {
    let (a, b) = (check::of(node, 0, DType::F32)?.ne(), check::of(node, 1, DType::F32)?.ne());
    ensure(a == [b[1], b[1], b[2], b[3]], Reason::Shape)?;
    check::result(node, Some(DType::F32), b)
}

fn solve(call: &mut Call<'_>, node: &NodeView<'_>) -> Result<()> {
    let (b, y) = (source(node, 1)?, node.dst());
    let args = Args::default().tensor(&source(node, 0)?)?.tensor(&b)?.tensor(&y)?;
    let [k, _, n2, n3] = y.ne();
    call.launch(("matrix", "solve_tri"), blocks(k * n2 * n3, 128), 128, args)
}
