//! Functions of single numbers, of two, gated units, and waves of times: kernels/elementwise.cu.

use super::check::{self, Answer, ensure, numbers, params};
use super::{Form, blocks, source};
use crate::call::{Args, Call};
use llmrt_plugin::abi::op::*;
use llmrt_plugin::{DType, NodeView, Op, Reason, Result, TensorView};

pub const UNARY: Form = (supports_unary, unary);
pub const BINARY: Form = (supports_binary, binary);
pub const GLU: Form = (supports_glu, glu);
pub const TIMESTEPS: Form = (supports_timesteps, timesteps);

const THREADS: usize = 256;

/// Elements of a thread: four neighbours where rows have whole fours.
fn width(y: &TensorView<'_>) -> usize {
    if y.ne()[0].is_multiple_of(4) { 4 } else { 1 }
}

/// The function's numbers as the kernel takes them; `None`: newer than this code.
fn constants(node: &NodeView<'_>) -> Option<[f32; 4]> {
    let bytes = node.params_bytes();
    Some(match node.op()? {
        Op::Scale => ScaleParams::from_bytes(bytes).map(|p| [p.scale, p.bias, 0.0, 0.0])?,
        Op::Xielu => XieluParams::from_bytes(bytes).map(|p| [p.alpha_n, p.alpha_p, p.beta, p.eps])?,
        Op::LeakyRelu => LeakyReluParams::from_bytes(bytes).map(|p| [p.slope, 0.0, 0.0, 0.0])?,
        Op::Clamp => ClampParams::from_bytes(bytes).map(|p| [p.min, p.max, 0.0, 0.0])?,
        _ => [0.0; 4],
    })
}

fn supports_unary(node: &NodeView<'_>) -> Answer {
    let x = numbers(node, 0)?;
    params(constants(node))?;
    check::result(node, x.dtype(), x.ne())
}

fn unary(call: &mut Call<'_>, node: &NodeView<'_>) -> Result<()> {
    let args = Args::default().tensor(&source(node, 0)?)?.tensor(&node.dst())?.int(node.op_id());
    let args = constants(node).unwrap_or_default().into_iter().fold(args, Args::float);
    call.launch(("elementwise", "unary"), blocks(node.dst().n_elements(), THREADS), THREADS, args)
}

fn supports_binary(node: &NodeView<'_>) -> Answer {
    let (a, b) = (numbers(node, 0)?, numbers(node, 1)?);
    let repeats = a.ne().iter().zip(b.ne()).all(|(a, b)| b > 0 && a.is_multiple_of(b));
    ensure(repeats && (node.op() != Some(Op::Add1) || b.n_elements() == 1), Reason::Shape)?;
    check::result(node, a.dtype(), a.ne())
}

fn binary(call: &mut Call<'_>, node: &NodeView<'_>) -> Result<()> {
    let (a, b, y) = (source(node, 0)?, source(node, 1)?, node.dst());
    let width = if a.ne()[0] == b.ne()[0] { width(&y) } else { 1 };
    let args = Args::default().tensor(&a)?.tensor(&b)?.tensor(&y)?.int(node.op_id()).int(width as u32);
    call.launch(("elementwise", "binary"), blocks(y.n_elements() / width, THREADS), THREADS, args)
}

fn supports_glu(node: &NodeView<'_>) -> Answer {
    let x = numbers(node, 0)?;
    let p = params(GluParams::from_bytes(node.params_bytes()))?;
    ensure(p.activation <= 6 && p.swapped <= 1, Reason::Param)?;
    let mut ne = x.ne();
    match node.src(1) {
        Some(up) => {
            ensure(up.dtype() == x.dtype(), Reason::Type)?;
            ensure(up.ne() == ne, Reason::Shape)?;
        }
        None => {
            ensure(ne[0].is_multiple_of(2), Reason::Shape)?;
            ne[0] /= 2;
        }
    }
    check::result(node, x.dtype(), ne)
}

fn glu(call: &mut Call<'_>, node: &NodeView<'_>) -> Result<()> {
    let (x, up, y) = (source(node, 0)?, node.src(1), node.dst());
    let p = GluParams::from_bytes(node.params_bytes()).unwrap_or_default();
    let half = y.ne()[0];
    let (gate, other) = match (up, p.swapped) {
        (Some(_), _) => (0, 0),
        (None, 0) => (0, half),
        (None, _) => (half, 0),
    };
    let args = Args::default().tensor(&x)?.tensor(&up.unwrap_or(x))?.tensor(&y)?;
    let width = width(&y);
    let args =
        args.count(gate).count(other).int(p.activation).float(p.alpha).float(p.limit).int(width as u32);
    call.launch(("elementwise", "glu"), blocks(y.n_elements() / width, THREADS), THREADS, args)
}

fn supports_timesteps(node: &NodeView<'_>) -> Answer {
    let p = params(TimestepEmbeddingParams::from_bytes(node.params_bytes()))?;
    ensure(p.max_period > 0, Reason::Param)?;
    let times = check::of(node, 0, DType::F32)?;
    check::vector(&times, times.ne()[0])?;
    check::result(node, Some(DType::F32), [p.dim as usize, times.ne()[0], 1, 1])
}

fn timesteps(call: &mut Call<'_>, node: &NodeView<'_>) -> Result<()> {
    let p = TimestepEmbeddingParams::from_bytes(node.params_bytes()).unwrap_or_default();
    let y = node.dst();
    let args = Args::default().tensor(&source(node, 0)?)?.tensor(&y)?.float(p.max_period as f32);
    call.launch(("elementwise", "timestep_embedding"), blocks(y.n_elements(), THREADS), THREADS, args)
}
