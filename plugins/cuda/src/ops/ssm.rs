//! The short convolution and the scan of state space models: kernels/ssm.cu.

use super::check::{self, Answer, ensure, params};
use super::{Form, blocks, source};
use crate::call::{Args, Call};
use llmrt_plugin::abi::op::StatesParams;
use llmrt_plugin::{DType, NodeView, Reason, Result};

pub const SSM_CONV: Form = (supports_conv, conv);
pub const SSM_SCAN: Form = (supports_scan, scan);
/// An op without a kernel.
pub const NONE: Form = (|_| Err(Reason::Op), |_, _| Ok(()));

/// Numbers of a line of a state that a warp has registers for.
pub const LONGEST_LINE: usize = 256;

fn supports_conv(node: &NodeView<'_>) -> Answer {
    let (x, kernel) = (check::of(node, 0, DType::F32)?.ne(), check::of(node, 1, DType::F32)?.ne());
    ensure(kernel[2..] == [1, 1] && x[3] == 1 && x[1] == kernel[1], Reason::Shape)?;
    let n_tokens = (x[0] + 1).checked_sub(kernel[0]).ok_or(Reason::Shape)?;
    check::result(node, Some(DType::F32), [x[1], n_tokens, x[2], 1])
}

fn conv(call: &mut Call<'_>, node: &NodeView<'_>) -> Result<()> {
    let y = node.dst();
    let args = Args::default().tensor(&source(node, 0)?)?.tensor(&source(node, 1)?)?.tensor(&y)?;
    call.launch(("ssm", "ssm_conv"), blocks(y.n_elements(), 256), 256, args)
}

/// How many states of each sequence stand in a result.
pub fn n_states(node: &NodeView<'_>) -> Result<usize, Reason> {
    Ok(params(StatesParams::from_bytes(node.params_bytes()))?.n_states.max(1) as usize)
}

/// The product of dims, if it is the size of a tensor.
pub fn product(dims: &[usize]) -> Result<usize, Reason> {
    dims.iter().try_fold(1usize, |n, d| n.checked_mul(*d)).ok_or(Reason::Shape)
}

fn supports_scan(node: &NodeView<'_>) -> Answer {
    // Sequences of different lengths have no kernel.
    ensure(node.src(7).is_none(), Reason::Param)?;
    let n_states = n_states(node)?;
    let ne = |i| check::of(node, i, DType::F32).map(|t| t.ne());
    let (states, x, dt, a, b) = (ne(0)?, ne(1)?, ne(2)?, ne(3)?, ne(4)?);
    let [head_dim, n_heads, n_tokens, n_seqs] = x;
    let d_state = states[0];
    ensure(d_state <= LONGEST_LINE && states[1..3] == [head_dim, n_heads], Reason::Shape)?;
    ensure(dt == [n_heads, n_tokens, n_seqs, 1], Reason::Shape)?;
    ensure(a[1..] == [n_heads, 1, 1] && (a[0] == 1 || a[0] == d_state), Reason::Shape)?;
    ensure(b == [d_state, b[1], n_tokens, n_seqs] && ne(5)? == b, Reason::Shape)?;
    ensure(b[1] > 0 && n_heads.is_multiple_of(b[1]), Reason::Shape)?;
    check::vector(&check::of(node, 6, DType::I32)?, n_seqs)?;
    let n = product(&[d_state, head_dim, n_heads, n_seqs, n_states])?.checked_add(product(&x)?);
    check::result(node, Some(DType::F32), [n.ok_or(Reason::Shape)?, 1, 1, 1])
}

fn scan(call: &mut Call<'_>, node: &NodeView<'_>) -> Result<()> {
    let args = (0..7).try_fold(Args::default(), |args, i| args.tensor(&source(node, i)?))?;
    let n_states = n_states(node).map_err(|_| super::missing())?;
    let [head_dim, n_heads, _, n_seqs] = source(node, 1)?.ne();
    let args = args.tensor(&node.dst())?.count(n_states);
    call.launch(("ssm", "ssm_scan"), blocks(head_dim * n_heads * n_seqs, 4), 128, args)
}
