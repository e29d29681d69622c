//! Norms: kernels/norm.cu, a block per row or per group of channels.

use super::check::{self, Answer, ensure, params};
use super::{Form, fuse, kept, mul_mat, source};
use crate::call::{Args, Call};
use llmrt_plugin::abi::op::{GroupNormParams, NormParams};
use llmrt_plugin::{DType, NodeView, Op, Reason, Result, TensorView};

pub const NORM: Form = (supports, compute);
pub const GROUP_NORM: Form = (supports_groups, groups);

fn supports(node: &NodeView<'_>) -> Answer {
    let p = params(NormParams::from_bytes(node.params_bytes()))?;
    let x = check::of(node, 0, DType::F32)?;
    ensure(node.op() != Some(Op::L2Norm) || p.eps >= 0.0, Reason::Param)?;
    for i in [1, 2] {
        if let Some(row) = check::optional(node, i, DType::F32)? {
            check::vector(&row, x.ne()[0])?;
        }
    }
    check::result(node, Some(DType::F32), x.ne())
}

/// The kernel's arguments: x, or the sum of x and `added`, normed; `plain`: the norm before the weight.
struct Norm<'a> {
    node: NodeView<'a>,
    x: TensorView<'a>,
    sum: Option<(TensorView<'a>, TensorView<'a>)>,
    weight: Option<TensorView<'a>>,
    plain: Option<TensorView<'a>>,
    y: TensorView<'a>,
    /// Whether y is written in 8 bits, too, for products that follow.
    packs: bool,
}

fn compute(call: &mut Call<'_>, node: &NodeView<'_>) -> Result<()> {
    let (x, y) = (source(node, 0)?, node.dst());
    launch(call, &Norm { node: *node, x, sum: None, weight: node.src(1), plain: None, y, packs: false })
}

fn launch(call: &mut Call<'_>, n: &Norm<'_>) -> Result<()> {
    let eps = NormParams::from_bytes(n.node.params_bytes()).unwrap_or_default().eps;
    let kind = match n.node.op() {
        Some(Op::LayerNorm) => 1,
        Some(Op::L2Norm) => 2,
        _ => 0,
    };
    let (added, sum) = n.sum.unzip();
    let packed = match n.packs {
        true => call.keep(&n.y, kept::Form::Packed, mul_mat::packed_bytes(&n.y), true)?,
        false => 0,
    };
    let args = Args::default().tensor(&n.x)?.optional(added)?.optional(sum)?.optional(n.weight)?;
    let args = args.optional(n.node.src(2))?.optional(n.plain)?.tensor(&n.y)?;
    let args = args.address(packed).int(kind).float(eps);
    call.launch(("norm", "row_norm"), [n.x.n_rows(), 1, 1], threads_of_parts(n.x.ne()[0]), args)
}

/// A sum and its norm, a norm and its factor in each column, or all three, as one launch, which leaves the result in 8 bits
/// as well if products with packed weights are next. How many nodes; 0: none.
pub fn fused(call: &mut Call<'_>, nodes: &[NodeView<'_>]) -> Result<usize> {
    let Some((mut norm, n_nodes)) = chain(nodes) else { return Ok(0) };
    norm.packs = call.is_read_packed(&norm.y, &nodes[n_nodes..])?;
    if (n_nodes == 1 && !norm.packs) || !is_safe(&norm)? {
        return Ok(0);
    }
    launch(call, &norm)?;
    Ok(n_nodes)
}

fn chain<'a>(nodes: &[NodeView<'a>]) -> Option<(Norm<'a>, usize)> {
    let add = nodes.first().filter(|node| is_sum(node));
    let rest = &nodes[usize::from(add.is_some())..];
    let node = rest.first().filter(|n| matches!(n.op(), Some(Op::RmsNorm | Op::LayerNorm | Op::L2Norm)))?;
    let x = node.src(0)?;
    let sum = match add {
        Some(add) if add.dst().id() == x.id() => Some((add.src(1)?, x)),
        Some(_) => return None,
        None => None,
    };
    let mul = rest.get(1).filter(|mul| is_factor(mul, node));
    let norm = Norm {
        node: *node,
        x: add.map_or(Some(x), |add| add.src(0))?,
        sum,
        weight: mul.map_or(node.src(1), |mul| mul.src(1)),
        plain: mul.map(|_| node.dst()),
        y: mul.map_or(node.dst(), NodeView::dst),
        packs: false,
    };
    let n_nodes = 1 + usize::from(add.is_some()) + usize::from(mul.is_some());
    Some((norm, n_nodes))
}

/// A sum of two tensors of F32 of one shape.
fn is_sum(node: &NodeView<'_>) -> bool {
    let is_alike = |t: TensorView<'_>| t.dtype() == Some(DType::F32) && t.ne() == node.dst().ne();
    node.op() == Some(Op::Add) && node.src(0).is_some_and(is_alike) && node.src(1).is_some_and(is_alike)
}

/// The product of a norm that has no weight and no bias with a row of F32.
fn is_factor(mul: &NodeView<'_>, norm: &NodeView<'_>) -> bool {
    let y = norm.dst();
    let is_row = |t: TensorView<'_>| t.dtype() == Some(DType::F32) && t.ne() == [y.ne()[0], 1, 1, 1];
    let is_whole = norm.src(1).is_none() && norm.src(2).is_none();
    let is_on_it = mul.op() == Some(Op::Mul) && mul.src(0).is_some_and(|t| t.id() == y.id());
    is_on_it && is_whole && mul.src(1).is_some_and(is_row)
}

/// Whether the kernel reads everything before it writes over it. A block reads x and what is added to it before it writes
/// a norm of that row; weights are read to the last.
fn is_safe(n: &Norm<'_>) -> Result<bool> {
    let written = [n.sum.map(|(_, sum)| sum), n.plain, Some(n.y)];
    let mut safe = true;
    for (i, t) in written.iter().enumerate().filter_map(|(i, t)| Some((i, t.as_ref()?))) {
        for row in [n.weight, n.node.src(2)].iter().flatten() {
            safe &= fuse::apart(t, row)?;
        }
        for other in written[..i].iter().flatten() {
            safe &= fuse::apart_or_same(t, other)?;
        }
        let is_one_block = n.sum.is_some() && n.x.n_rows() == 1;
        for x in [Some(n.x), n.sum.map(|(added, _)| added)].iter().flatten().filter(|_| !is_one_block) {
            safe &= fuse::apart_or_same(t, x)?;
        }
    }
    Ok(safe)
}

/// Whole warps for a row, up to 256 threads.
pub fn threads(n: usize) -> usize {
    n.next_multiple_of(32).clamp(32, 256)
}

/// Whole warps for a row of which a thread has eight numbers at once: `PART` of kernels/norm.cu.
pub fn threads_of_parts(n: usize) -> usize {
    n.div_ceil(8).next_multiple_of(32).clamp(32, 1024)
}

fn supports_groups(node: &NodeView<'_>) -> Answer {
    let p = params(GroupNormParams::from_bytes(node.params_bytes()))?;
    ensure(p.n_groups > 0, Reason::Param)?;
    check::result(node, Some(DType::F32), check::of(node, 0, DType::F32)?.ne())
}

fn groups(call: &mut Call<'_>, node: &NodeView<'_>) -> Result<()> {
    let (x, y) = (source(node, 0)?, node.dst());
    let p = GroupNormParams::from_bytes(node.params_bytes()).unwrap_or_default();
    let [n0, n1, channels, n_images] = x.ne();
    let per_group = channels.div_ceil(p.n_groups.max(1) as usize);
    let n_groups = channels.div_ceil(per_group);
    let args = Args::default().tensor(&x)?.tensor(&y)?.count(per_group).float(p.eps);
    let n_threads = threads(n0 * n1 * per_group);
    call.launch(("norm", "group_norm"), [n_groups * n_images, 1, 1], n_threads, args)
}
