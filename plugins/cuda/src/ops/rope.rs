//! Rotary position embedding: kernels/rope.cu.

use super::check::{self, Answer, ensure, numbers, params};
use super::{Form, blocks, fuse, source};
use crate::call::{Args, Call};
use llmrt_plugin::abi::op::RopeParams;
use llmrt_plugin::{DType, NodeView, Op, Reason, Result};
use std::f32::consts::PI;

pub const ROPE: Form = (supports, compute);

const THREADS: usize = 128;

const NORMAL: u32 = 0;
const NEOX: u32 = 2;
const MROPE: u32 = 8;
const VISION: u32 = 24;
const INTERLEAVED: u32 = 40;

fn supports(node: &NodeView<'_>) -> Answer {
    let p = params(RopeParams::from_bytes(node.params_bytes()))?;
    let x = numbers(node, 0)?;
    let (ne, n_dims, offset) = (x.ne(), p.n_dims as usize, p.offset as usize);
    ensure(n_dims > 0 && n_dims.is_multiple_of(2) && offset.is_multiple_of(2), Reason::Param)?;
    ensure(offset.saturating_add(n_dims) <= ne[0] && p.back <= 1, Reason::Param)?;
    ensure([NORMAL, NEOX, MROPE, VISION, INTERLEAVED].contains(&p.mode), Reason::Param)?;
    ensure(p.mode != VISION || (n_dims.checked_mul(2) == Some(ne[0]) && offset == 0), Reason::Param)?;
    let mut n_positions = ne[2];
    if matches!(p.mode, MROPE | VISION | INTERLEAVED) {
        let [s0, s1, s2, s3] = sections(&p).map(u64::from);
        ensure(s0 + s1 + s2 > 0 && s0 + s1 + s2 + s3 <= ne[0] as u64, Reason::Param)?;
        n_positions = ne[2].checked_mul(4).ok_or(Reason::Shape)?;
    }
    check::vector(&check::of(node, 1, DType::I32)?, n_positions)?;
    if let Some(factors) = check::optional(node, 2, DType::F32)? {
        ensure(factors.ne()[0] >= n_pairs(&p) && factors.ne()[1..] == [1; 3], Reason::Shape)?;
    }
    check::result(node, x.dtype(), ne)
}

fn compute(call: &mut Call<'_>, node: &NodeView<'_>) -> Result<()> {
    let grid = blocks(n_threads(node)?, THREADS);
    call.launch(("rope", "rope"), grid, THREADS, args(node)?)
}

/// `struct Rope` of the kernels.
fn args(node: &NodeView<'_>) -> Result<Args> {
    let p = RopeParams::from_bytes(node.params_bytes()).unwrap_or_default();
    let (low, high) = yarn_range(&p);
    let args = Args::default().tensor(&source(node, 0)?)?.tensor(&source(node, 1)?)?.optional(node.src(2))?;
    let args = args.tensor(&node.dst())?.int(p.n_dims).int(p.mode).float(p.freq_base).float(p.freq_scale);
    let args = args.float(p.ext_factor).float(p.attn_factor).float(low).float(high);
    Ok(sections(&p).into_iter().fold(args, Args::int).int(p.back).int(p.offset))
}

/// One for each pair, and for each number that stays as it is.
fn n_threads(node: &NodeView<'_>) -> Result<usize> {
    let p = RopeParams::from_bytes(node.params_bytes()).unwrap_or_default();
    let x = source(node, 0)?;
    Ok((x.ne()[0] - n_pairs(&p)) * x.n_rows())
}

/// Most tokens whose heads are written to caches as they are turned: each number looks for later rows with its row's id.
const FEW_TOKENS: usize = 64;

/// One or two tensors rotated and the caches they are written to, and other rows written after them, as one launch. How
/// many nodes; 0: none.
pub fn fused(call: &mut Call<'_>, nodes: &[NodeView<'_>]) -> Result<usize> {
    for n in (2..=nodes.len().min(4)).rev() {
        let Some(group) = group(&nodes[..n]) else { continue };
        if fuse::independent(&nodes[..n], |node, s| node.op() == Some(Op::SetRows) && s == 1)? {
            launch(call, &group)?;
            return Ok(n);
        }
    }
    Ok(0)
}

/// Turned tensors with the writes of them, and a write of other rows.
struct Group<'a> {
    turns: Vec<(NodeView<'a>, Option<NodeView<'a>>)>,
    plain: Option<NodeView<'a>>,
}

/// All of the nodes, if they are such a group.
fn group<'a>(nodes: &[NodeView<'a>]) -> Option<Group<'a>> {
    let n_turns = nodes.iter().take_while(|node| node.op() == Some(Op::Rope)).count();
    if n_turns == 0 || n_turns > 2 {
        return None;
    }
    let mut turns: Vec<_> = nodes[..n_turns].iter().map(|node| (*node, None)).collect();
    let mut plain = None;
    for write in &nodes[n_turns..] {
        let rows = write.src(1).filter(|_| is_write_of_heads(write))?;
        let place = match turns.iter_mut().find(|(turn, _)| turn.dst().id() == rows.id()) {
            // Rounded twice, the numbers would be others.
            Some(_) if rows.dtype() != Some(DType::F32) => return None,
            Some((_, place)) => place,
            None => &mut plain,
        };
        if place.replace(*write).is_some() {
            return None;
        }
    }
    Some(Group { turns, plain })
}

/// Heads of few tokens over the rows of one cache of floats.
fn is_write_of_heads(node: &NodeView<'_>) -> bool {
    let (Some(cache), Some(rows), Some(ids)) = (node.src(0), node.src(1), node.src(2)) else { return false };
    let [dim, n_heads, n_tokens, n] = rows.ne();
    node.op() == Some(Op::SetRows)
        && check::is_number(&cache)
        && cache.ne()[0] == dim * n_heads
        && cache.ne()[2..] == [1, 1]
        && n == 1
        && ids.ne() == [n_tokens, 1, 1, 1]
        && n_tokens <= FEW_TOKENS
}

fn launch(call: &mut Call<'_>, group: &Group<'_>) -> Result<()> {
    let (mut ropes, mut writes, mut n_blocks) = (Args::default(), Args::default(), [0; 3]);
    for (turn, n) in [group.turns.first(), group.turns.get(1)].into_iter().zip(&mut n_blocks) {
        let Some((turn, write)) = turn else {
            // No blocks have it.
            ropes = ropes.then(args(&group.turns[0].0)?);
            writes = write_args(writes, None)?;
            continue;
        };
        ropes = ropes.then(args(turn)?);
        writes = write_args(writes, write.as_ref())?;
        *n = n_threads(turn)?.div_ceil(THREADS);
    }
    if let Some(plain) = &group.plain {
        n_blocks[2] = source(plain, 1)?.n_elements().div_ceil(THREADS);
    }
    let args = ropes.then(write_args(writes, group.plain.as_ref())?).count(n_blocks[0]).count(n_blocks[1]);
    call.launch(("rope", "rope_write"), [n_blocks.iter().sum(), 1, 1], THREADS, args)
}

/// `struct Write` of the kernels.
fn write_args(args: Args, node: Option<&NodeView<'_>>) -> Result<Args> {
    (0..3).try_fold(args, |args, i| args.optional(node.and_then(|node| node.src(i))))
}

fn n_pairs(p: &RopeParams) -> usize {
    if p.mode == VISION { p.n_dims as usize } else { p.n_dims as usize / 2 }
}

fn sections(p: &RopeParams) -> [u32; 4] {
    [p.section0, p.section1, p.section2, p.section3]
}

/// YaRN's correction range: pairs before it are extrapolated, pairs past it interpolated.
fn yarn_range(p: &RopeParams) -> (f32, f32) {
    let n = p.n_dims as f32;
    let pair_with =
        |rotations: f32| n * (p.n_ctx_orig as f32 / (rotations * 2.0 * PI)).ln() / (2.0 * p.freq_base.ln());
    (pair_with(p.beta_fast).floor().max(0.0), pair_with(p.beta_slow).ceil().min(n - 1.0))
}
