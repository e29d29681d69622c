//! Linear attention with a state per head: kernels/recurrence.cu, a warp per row or column of a state.

use super::check::{self, Answer, ensure, params};
use super::ssm::{LONGEST_LINE, n_states, product};
use super::{Form, blocks, source};
use crate::call::{Args, Call};
use llmrt_plugin::abi::op::GatedLinearAttnParams;
use llmrt_plugin::{DType, NodeView, Reason, Result};

pub const GATED_LINEAR_ATTN: Form = (supports_linear, linear);
pub const RWKV_WKV6: Form =
    (|node| supports(node, 5, Some(3)), |call, node| compute(call, node, "rwkv_wkv6", None));
pub const RWKV_WKV7: Form =
    (|node| supports(node, 6, None), |call, node| compute(call, node, "rwkv_wkv7", None));
pub const GATED_DELTA_NET: Form = (supports_delta, delta);

/// Warps of a block: neighbours read and write neighbouring numbers.
const WARPS: usize = 8;

/// `n` sources [S, H, n_tokens], of which one may be [S, H] for all tokens, then the states [S·S·H, n_seqs].
fn supports(node: &NodeView<'_>, n: usize, of_all_tokens: Option<usize>) -> Answer {
    // Sequences of different lengths have no kernel.
    ensure(node.n_src() == n + 1, Reason::Param)?;
    let [s, h, n_tokens, _] = check::of(node, 0, DType::F32)?.ne();
    for i in 0..n {
        let n_tokens = if of_all_tokens == Some(i) { 1 } else { n_tokens };
        ensure(check::of(node, i, DType::F32)?.ne() == [s, h, n_tokens, 1], Reason::Shape)?;
    }
    let state = check::of(node, n, DType::F32)?.ne();
    let n_seqs = state[1];
    ensure(s <= LONGEST_LINE && state == [product(&[s, s, h])?, n_seqs, 1, 1], Reason::Shape)?;
    ensure(n_seqs > 0 && n_tokens.is_multiple_of(n_seqs), Reason::Shape)?;
    let n_rows = product(&[s, n_seqs])?.checked_add(n_tokens).ok_or(Reason::Shape)?;
    check::result(node, Some(DType::F32), [s * h, n_rows, 1, 1])
}

fn compute(call: &mut Call<'_>, node: &NodeView<'_>, kernel: &str, scale: Option<f32>) -> Result<()> {
    let n = node.n_src();
    let args = (0..n).try_fold(Args::default(), |args, i| args.tensor(&source(node, i)?))?;
    let args = args.tensor(&node.dst())?;
    let args = scale.into_iter().fold(args, Args::float);
    let ([s, h, ..], n_seqs) = (source(node, 0)?.ne(), source(node, n - 1)?.ne()[1]);
    call.launch(("recurrence", kernel), blocks(s * h * n_seqs, WARPS), 32 * WARPS, args)
}

fn supports_linear(node: &NodeView<'_>) -> Answer {
    params(GatedLinearAttnParams::from_bytes(node.params_bytes()))?;
    supports(node, 4, None)
}

fn linear(call: &mut Call<'_>, node: &NodeView<'_>) -> Result<()> {
    let p = GatedLinearAttnParams::from_bytes(node.params_bytes()).unwrap_or_default();
    compute(call, node, "gated_linear_attn", Some(p.scale))
}

fn supports_delta(node: &NodeView<'_>) -> Answer {
    // As in `supports`.
    ensure(node.n_src() == 6, Reason::Param)?;
    let n_states = n_states(node)?;
    let ne = |i| check::of(node, i, DType::F32).map(|t| t.ne());
    let [s, h, n_tokens, n_seqs] = ne(2)?;
    for shared in [ne(0)?, ne(1)?] {
        ensure(shared[0] == s && shared[2] == n_tokens, Reason::Shape)?;
        ensure(h.is_multiple_of(shared[1]) && n_seqs.is_multiple_of(shared[3]), Reason::Shape)?;
    }
    let g = ne(3)?;
    ensure(g[1..] == [h, n_tokens, n_seqs] && (g[0] == 1 || g[0] == s), Reason::Shape)?;
    ensure(ne(4)? == [1, h, n_tokens, n_seqs] && ne(5)? == [s, s, h, n_seqs], Reason::Shape)?;
    ensure(s <= LONGEST_LINE, Reason::Shape)?;
    let n_rows = product(&[n_states, s, n_seqs])?.checked_add(product(&[n_tokens, n_seqs])?);
    check::result(node, Some(DType::F32), [product(&[s, h])?, n_rows.ok_or(Reason::Shape)?, 1, 1])
}

fn delta(call: &mut Call<'_>, node: &NodeView<'_>) -> Result<()> {
    let args = (0..6).try_fold(Args::default(), |args, i| args.tensor(&source(node, i)?))?;
    let n_states = n_states(node).map_err(|_| super::missing())?;
    let [s, h, _, n_seqs] = source(node, 2)?.ne();
    let args = args.tensor(&node.dst())?.count(n_states);
    call.launch(("recurrence", "gated_delta_net"), blocks(s * h * n_seqs, WARPS), 32 * WARPS, args)
}
