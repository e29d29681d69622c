//! Causal attention over a paged cache, and its mask: kernels/attention.cu, for prompts kernels/attention_tile.cu.

use super::check::{self, Answer, ensure, params};
use super::tiles::in_sixteens;
use super::{Form, source};
use crate::call::{Args, Call};
use llmrt_plugin::abi::op::{AttentionParams, PagedMaskParams};
use llmrt_plugin::{DType, Error, NodeView, Reason, Result, TensorView};

pub const ATTENTION: Form = (supports, compute);
pub const PAGED_MASK: Form = (supports_mask, mask);

/// Numbers of a head that the kernel has registers for.
const LARGEST_HEAD: usize = 256;
/// Keys below which it does not pay to split them.
const KEYS_PER_PART: usize = 256;
const MOST_PARTS: usize = 32;
/// New tokens of a sequence from which on tiles take it.
const MANY: usize = 16;
/// Rows of a tile: heads that share a KV head, times tokens.
const ROWS: usize = 64;

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
    Ok(t)
}

fn supports(node: &NodeView<'_>) -> Answer {
    let p = params(AttentionParams::from_bytes(node.params_bytes()))?;
    let n_kv_heads = p.n_kv_heads as usize;
    ensure(n_kv_heads > 0 && p.block_size > 0, Reason::Param)?;
    let [head_dim, n_heads, n_tokens, ne3] = check::of(node, 0, DType::F32)?.ne();
    let (k, v) = (cache(node, 1)?.ne(), cache(node, 2)?.ne());
    ensure(ne3 == 1 && n_heads.is_multiple_of(n_kv_heads) && n_tokens <= 65535, Reason::Shape)?;
    ensure(head_dim.checked_mul(n_kv_heads) == Some(k[0]) && k[2..] == [1, 1], Reason::Shape)?;
    ensure(v[0] % n_kv_heads == 0 && v[1..] == k[1..], Reason::Shape)?;
    ensure(head_dim.max(v[0] / n_kv_heads) <= LARGEST_HEAD, Reason::Shape)?;
    supports_paging(node, 3)?;
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
    Ok(args.count(block_size as usize).count(window as usize).count(n_slots))
}

/// Into how many parts the keys fall, so that few heads and tokens give every multiprocessor work.
fn n_parts(n_blocks: usize, n_keys: usize, n_sms: usize) -> usize {
    let wanted = (2 * n_sms).div_ceil(n_blocks.max(1));
    wanted.min(n_keys / KEYS_PER_PART).clamp(1, MOST_PARTS)
}

fn compute(call: &mut Call<'_>, node: &NodeView<'_>) -> Result<()> {
    let p = AttentionParams::from_bytes(node.params_bytes()).unwrap_or_default();
    let (q, table) = (source(node, 0)?, source(node, 3)?);
    let ([_, n_heads, n_tokens, _], n_seqs) = (q.ne(), table.ne()[1]);
    let mut one_by_one = n_tokens;
    let mut many = 0;
    if let Some(kernel) = tile_kernel(call, node, &p)? {
        // Of sequences that bring fewer tokens each the other kernel takes as many as there may be; one alone is for tiles.
        (many, one_by_one) = if n_seqs == 1 { (1, 0) } else { (MANY, n_tokens.min((MANY - 1) * n_seqs)) };
        let grid = [p.n_kv_heads as usize, n_tiles(n_heads / p.n_kv_heads as usize, n_tokens, n_seqs), 1];
        let args = args(node, &p, (0, 1), many)?;
        call.launch(("attention_tile", &kernel), grid, 128, args)?;
    }
    let mut n_keys = table.ne()[0].saturating_mul(p.block_size as usize);
    if p.window > 0 {
        n_keys = n_keys.min(p.window as usize);
    }
    // Beside prompts there are decodes: about one token of each sequence.
    let n_blocks = n_heads * if many > 0 { one_by_one.min(n_seqs) } else { one_by_one };
    let n_parts = n_parts(n_blocks, n_keys, call.gpu.identity.n_sms as usize);
    let dim_v = dim_v(node, &p)?;
    let parts = match n_parts {
        1 => 0,
        n => call.scratch(n * n_heads * one_by_one * (dim_v + 2) * 4)?,
    };
    let args = || args(node, &p, (parts, n_parts), many);
    call.launch(("attention", "attention"), [n_heads, one_by_one, n_parts], 128, args()?)?;
    match n_parts {
        1 => Ok(()),
        _ => call.launch(("attention", "attention_parts"), [n_heads, one_by_one, 1], 128, args()?),
    }
}

/// Numbers of a head of V.
fn dim_v(node: &NodeView<'_>, p: &AttentionParams) -> Result<usize> {
    Ok(source(node, 2)?.ne()[0] / p.n_kv_heads as usize)
}

/// `struct Attention` of the kernels, with the memory of parts and their number.
fn args(
    node: &NodeView<'_>,
    p: &AttentionParams,
    (parts, n_parts): (u64, usize),
    many: usize,
) -> Result<Args> {
    let (q, k, v) = (source(node, 0)?, source(node, 1)?, source(node, 2)?);
    let args =
        Args::default().tensor(&q)?.tensor(&k)?.tensor(&v)?.tensor(&node.dst())?.optional(node.src(6))?;
    let args = paging(args, node, 3, p.block_size, p.window, k.ne()[1])?.address(parts).count(n_parts);
    let args = args.count(p.n_kv_heads as usize).count(dim_v(node, p)?).count(many);
    Ok(args.float(p.scale).float(p.softcap).float(p.max_bias))
}

/// The kernel for sequences with many new tokens, where there may be one and it can read the cache: halves, 16 bytes of them
/// at once, or Q8_0.
fn tile_kernel(call: &Call<'_>, node: &NodeView<'_>, p: &AttentionParams) -> Result<Option<String>> {
    let (q, k, v) = (source(node, 0)?, source(node, 1)?, source(node, 2)?);
    let ([dim, n_heads, n_tokens, _], n_seqs) = (q.ne(), source(node, 3)?.ne()[1]);
    let dim_v = dim_v(node, p)?;
    let dtype = match (k.dtype(), v.dtype()) {
        (Some(DType::F16 | DType::Q8_0), Some(DType::F16 | DType::Q8_0)) => "f16",
        (Some(DType::BF16), Some(DType::BF16)) if call.gpu.identity.capability >= (8, 0) => "bf16",
        _ => return Ok(None),
    };
    let readable = |t: &TensorView<'_>| Ok::<_, Error>(t.dtype() == Some(DType::Q8_0) || in_sixteens(t)?);
    let fits = dim.is_multiple_of(8) && dim_v.is_multiple_of(8) && k.ne()[1] <= i32::MAX as usize;
    // Each sequence has a token at least, if all have.
    let is_prompt = n_tokens + 1 >= MANY + n_seqs;
    if !is_prompt || !fits || !readable(&k)? || !readable(&v)? {
        return Ok(None);
    }
    let n_tiles = n_tiles(n_heads / p.n_kv_heads as usize, n_tokens, n_seqs);
    let size = [64, 128, 256].into_iter().find(|size| dim.max(dim_v) <= *size);
    Ok(size.filter(|_| n_tiles <= 65535).map(|size| format!("attention_tile_{dtype}_{size}")))
}

/// Tiles at most: of each sequence, and of tokens before and after them, the last may not be full.
fn n_tiles(group: usize, n_tokens: usize, n_seqs: usize) -> usize {
    (n_tokens * group).div_ceil(ROWS) + n_seqs + 1
}

fn supports_mask(node: &NodeView<'_>) -> Answer {
    let p = params(PagedMaskParams::from_bytes(node.params_bytes()))?;
    ensure(p.block_size > 0, Reason::Param)?;
    supports_paging(node, 0)?;
    check::result(node, Some(DType::F32), [p.n_slots as usize, p.n_tokens as usize, 1, 1])
}

fn mask(call: &mut Call<'_>, node: &NodeView<'_>) -> Result<()> {
    let p = PagedMaskParams::from_bytes(node.params_bytes()).unwrap_or_default();
    let args = paging(Args::default(), node, 0, p.block_size, p.window, p.n_slots as usize)?;
    let args = args.tensor(&node.dst())?;
    call.launch(("attention", "paged_mask"), [p.n_tokens as usize, 1, 1], 256, args)
}

#[cfg(test)]
mod tests {
    use super::n_parts;

    #[test]
    fn keys_are_split_where_there_are_many_and_few_blocks() {
        assert_eq!(n_parts(32, 4096, 132), 9);
        assert_eq!(n_parts(32, 512, 132), 2);
        assert_eq!(n_parts(32, 100, 132), 1);
        assert_eq!(n_parts(32 * 512, 4096, 132), 1);
        assert_eq!(n_parts(1, 1 << 20, 132), 32);
        assert_eq!(n_parts(0, 4096, 132), 16);
    }
}
