//! Causal attention over a paged cache, and its mask: kernels/attention.cu, for prompts kernels/attention_tile.cu.

use super::attention_heads::{Heads, Tokens, has_room};
use super::attention_tile::{Tiles, is_aligned, tiles};
use super::check::{self, Answer, ensure, params};
use super::{Form, source};
use crate::call::{Args, Call};
use crate::driver::Identity;
use llmrt_plugin::abi::op::{AttentionParams, PagedMaskParams};
use llmrt_plugin::{DType, NodeView, Reason, Result, TensorView};

pub const ATTENTION: Form = (supports, compute);
pub const PAGED_MASK: Form = (supports_mask, mask);

fn supports_paging(node: &NodeView<'_>, first: usize) -> Answer {
    let table = check::of(node, first, DType::I32)?.ne();
    ensure(table[2..] == [1, 1], Reason::Shape)?;
    check::vector(&check::of(node, first + 1, DType::I32)?, table[1])?;
    check::vector(&check::of(node, first + 2, DType::I32)?, table[1] + 1)
}

/// A cache of a dtype that the kernel reads.
fn cache<'a>(node: &NodeView<'a>, i: usize) -> Result<TensorView<'a>, Reason> {
    let t = check::given(node, i)?;
    ensure(check::is_number(&t) || t.dtype() == Some(DType::Q8_0), Reason::Type)?;
    check::dense_rows(&t)?;
    // Slots, and bytes of one, are numbers of 31 bits.
    ensure(t.ne()[1].max(t.nb()[1]) <= i32::MAX as usize, Reason::Shape)?;
    Ok(t)
}

fn supports(node: &NodeView<'_>) -> Answer {
    let p = params(AttentionParams::from_bytes(node.params_bytes()))?;
    let n_kv_heads = p.n_kv_heads as usize;
    ensure(n_kv_heads > 0 && p.block_size > 0 && p.bidirectional == 0 && p.chunk == 0, Reason::Param)?;
    let [head_dim, n_heads, n_tokens, ne3] = check::of(node, 0, DType::F32)?.ne();
    let (k, v) = (cache(node, 1)?.ne(), cache(node, 2)?.ne());
    // Lanes without a number of q read the head's first, which is there.
    ensure(
        ne3 == 1 && head_dim > 0 && n_heads.is_multiple_of(n_kv_heads) && n_tokens <= 65535,
        Reason::Shape,
    )?;
    ensure(head_dim.checked_mul(n_kv_heads) == Some(k[0]) && k[2..] == [1, 1], Reason::Shape)?;
    ensure(v[0] % n_kv_heads == 0 && v[1..] == k[1..], Reason::Shape)?;
    supports_paging(node, 3)?;
    let (caches, dims) = ([&cache(node, 1)?, &cache(node, 2)?], [head_dim, v[0] / n_kv_heads]);
    ensure(has_room(caches, dims, n_tokens, check::given(node, 3)?.ne()[1]), Reason::Shape)?;
    if let Some(sinks) = check::optional(node, 6, DType::F32)? {
        check::vector(&sinks, n_heads)?;
    }
    check::result(node, Some(DType::F32), [v[0] / n_kv_heads * n_heads, n_tokens, 1, 1])
}

/// `struct Paging` of the kernels.
fn paging(
    args: Args,
    node: &NodeView<'_>,
    first: usize,
    block_size: u32,
    window: u32,
    n_slots: usize,
) -> Result<Args> {
    let args = (first..first + 3).try_fold(args, |args, i| args.tensor(&source(node, i)?))?;
    // -1 where it is no power of two.
    let log = if block_size.is_power_of_two() { block_size.ilog2() as usize } else { usize::MAX };
    Ok(args.count(block_size as usize).count(log).count(window as usize).count(n_slots))
}

/// The tokens of a node that are no tile's: all of them without tiles.
fn others(node: &NodeView<'_>, tiles: Option<&Tiles>) -> Result<Tokens> {
    let (n_tokens, n_seqs) = (source(node, 0)?.ne()[2], source(node, 3)?.ne()[1]);
    Ok(tiles.map_or((n_tokens, n_tokens), |tiles| (tiles.n_others, tiles.n_others.min(n_seqs))))
}

/// Bytes at most of the parts' results of a supported node: the cache's address decides whether there are tiles, and
/// which kernel takes the rest.
pub fn workspace(node: &NodeView<'_>, device: &Identity) -> Result<usize> {
    let p = AttentionParams::from_bytes(node.params_bytes()).unwrap_or_default();
    let tiles = tiles(node, &p, device.capability)?;
    let n_sms = device.n_sms as usize;
    let mut most = 0;
    for tokens in [others(node, None)?, others(node, tiles.as_ref())?] {
        for is_aligned in [false, true] {
            let heads = Heads::new(node, &p, is_aligned)?;
            most = most.max(heads.parts(node, &p, tokens, n_sms)?.1);
        }
    }
    Ok(most)
}

fn compute(call: &mut Call<'_>, node: &NodeView<'_>) -> Result<()> {
    let p = AttentionParams::from_bytes(node.params_bytes()).unwrap_or_default();
    let device = &call.gpu.identity;
    let is_aligned = is_aligned(node)?;
    let tiles = tiles(node, &p, device.capability)?.filter(|_| is_aligned);
    let (n_heads, (n_tokens, n_busy)) = (source(node, 0)?.ne()[1], others(node, tiles.as_ref())?);
    let heads = Heads::new(node, &p, is_aligned)?;
    let (n_parts, bytes) = heads.parts(node, &p, (n_tokens, n_busy), device.n_sms as usize)?;
    let many = tiles.as_ref().map_or(0, |tiles| tiles.many);
    if let Some(Tiles { kernel, grid, .. }) = &tiles {
        call.launch(("attention_tile", kernel), *grid, 128, args(node, &p, &heads, (0, 1), many)?)?;
    }
    if n_tokens == 0 {
        return Ok(());
    }
    let parts = if n_parts > 1 { call.scratch(bytes)? } else { 0 };
    let args = || args(node, &p, &heads, (parts, n_parts), many);
    call.launch(("attention", &heads.kernel), [heads.blocks, n_tokens, n_parts], 128, args()?)?;
    let thirty_twos = dim_v(node, &p)?.div_ceil(32);
    match n_parts {
        1 => Ok(()),
        _ => call.launch(("attention", "attention_parts"), [n_heads, n_tokens, thirty_twos], 128, args()?),
    }
}

/// Numbers of a head of V.
pub fn dim_v(node: &NodeView<'_>, p: &AttentionParams) -> Result<usize> {
    Ok(source(node, 2)?.ne()[0] / p.n_kv_heads.max(1) as usize)
}

/// `struct Attention` of the kernels, with the memory of parts and their number.
fn args(
    node: &NodeView<'_>,
    p: &AttentionParams,
    heads: &Heads,
    (parts, n_parts): (u64, usize),
    many: usize,
) -> Result<Args> {
    let (q, k, v) = (source(node, 0)?, source(node, 1)?, source(node, 2)?);
    let args =
        Args::default().tensor(&q)?.tensor(&k)?.tensor(&v)?.tensor(&node.dst())?.optional(node.src(6))?;
    let args = paging(args, node, 3, p.block_size, p.window, k.ne()[1])?.address(parts).count(n_parts);
    let args = args.count(p.n_kv_heads as usize).count(dim_v(node, p)?).count(many);
    let args = args.count(heads.group).count(heads.shares).count(heads.group.div_ceil(heads.shares.max(1)));
    Ok(args.float(p.scale).float(p.softcap).float(p.max_bias))
}

fn supports_mask(node: &NodeView<'_>) -> Answer {
    let p = params(PagedMaskParams::from_bytes(node.params_bytes()))?;
    ensure(p.block_size > 0 && p.bidirectional == 0 && p.chunk == 0, Reason::Param)?;
    supports_paging(node, 0)?;
    check::result(node, Some(DType::F32), [p.n_slots as usize, p.n_tokens as usize, 1, 1])
}

fn mask(call: &mut Call<'_>, node: &NodeView<'_>) -> Result<()> {
    let p = PagedMaskParams::from_bytes(node.params_bytes()).unwrap_or_default();
    let args = paging(Args::default(), node, 0, p.block_size, p.window, p.n_slots as usize)?;
    let args = args.tensor(&node.dst())?;
    call.launch(("attention", "paged_mask"), [p.n_tokens as usize, 1, 1], 256, args)
}
