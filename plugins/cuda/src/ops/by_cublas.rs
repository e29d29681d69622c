//! Products of halves that cuBLASLt does in place of our kernel, if it is there: many columns, one matrix,
//! a contiguous result. x is converted to halves by our kernel and, for F16, columns are multiplied by their units
//! after the product.

use super::check::is_number;
use super::source;
use super::tiles::{is_aligned, multiplies_halves, parts};
use crate::call::{Args, Call, address};
use crate::cublas_product::Problem;
use crate::gpu::Gpu;
use llmrt_plugin::{DType, NodeView, Op, Result, TensorView};

/// Whether cuBLASLt is there for a node, unless it finds no algorithm.
pub fn is_there_for(gpu: &Gpu, node: &NodeView<'_>) -> Result<bool> {
    Ok(is_suited(node)? && gpu.cublas.is_there() && is_aligned(&node.dst())?)
}

/// Puts cuBLASLt's product before the launch of our kernel, which is the last one and stays for when that fails.
pub fn take_over(call: &mut Call<'_>, node: &NodeView<'_>, halves: u64, units: u64) -> Result<()> {
    let (w, x, y) = (source(node, 0)?, source(node, 1)?, node.dst());
    if !is_there_for(call.gpu, node)? {
        return Ok(());
    }
    let problem = problem(call.gpu, [&w, &x, &y], halves)?;
    let Some(mut product) = call.gpu.cublas.product(&problem) else { return Ok(()) };
    if product.workspace() > 0 {
        product.take(call.scratch(product.workspace())?);
    }
    let n_own = call.launches.len() - 1;
    if !problem.is_bf16 {
        let args = Args::default().tensor(&w)?.tensor(&x)?.tensor(&y)?.optional(None)?;
        let args = args.address(halves).address(0).address(0).address(units);
        let grid = [x.n_rows(), y.ne()[0].div_ceil(1024).min(8), 1];
        call.launch(("mul_mat_half", "scale_columns"), grid, 128, args)?;
    }
    call.replace(n_own, product);
    Ok(())
}

/// Bytes of scratch memory that it may take for a node with many columns; its result's address decides.
pub fn workspace(node: &NodeView<'_>, gpu: &Gpu) -> Result<usize> {
    let w = source(node, 0)?;
    let is_for_halves = is_number(&w) && multiplies_halves(gpu.identity.capability, &w);
    match is_for_halves && is_suited(node)? && gpu.cublas.is_open() {
        true => Ok(gpu.cublas.workspace(gpu.identity.capability)),
        false => Ok(0),
    }
}

/// One matrix for all columns, which are contiguous.
fn is_suited(node: &NodeView<'_>) -> Result<bool> {
    let is_one = source(node, 0)?.ne()[2..] == [1, 1];
    Ok(node.op() == Some(Op::MulMat) && is_one && node.dst().is_contiguous())
}

fn problem(gpu: &Gpu, [w, x, y]: [&TensorView<'_>; 3], halves: u64) -> Result<Problem> {
    let (k, is_bf16) = (w.ne()[0], w.dtype() == Some(DType::BF16));
    let n_parts = parts(gpu, is_bf16);
    Ok(Problem {
        is_bf16,
        m: w.ne()[1],
        n: x.n_rows(),
        k,
        w: (address(w)?, w.nb()[1] / 2),
        x: ((0..n_parts).map(|i| halves + (i * k * 2) as u64).collect(), n_parts * k),
        y: address(y)?,
        workspace: gpu.cublas.workspace(gpu.identity.capability),
    })
}
