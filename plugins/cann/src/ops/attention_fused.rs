//! Attention by the vendor's operators: F16 or BF16, no soft cap, no sinks, no ALiBi. Every token is a sequence of its own
//! with its row of the block table in steps of few tokens; a prompt sees the blocks of all sequences beside each other, read
//! where they are if their size permits.
//!
//! Lengths are given to it on the host, where they would be fixed in a captured graph, so the lengths given are
//! those of full tables, and a mask hides what is not there.

use super::attention::Attention;
use super::paging::Paging;
use crate::call::{Call, run};
use crate::library::Cann;
use crate::operand::Operand;
use crate::sys::*;
use llmrt_plugin::{Error, Result};

/// What the operator takes.
const MAX_HEADS: i64 = 256;
const MAX_SHARING: i64 = 64;
const MAX_HEAD_DIM: i64 = 512;
const MAX_IN_ROW: i64 = 65_535;

/// Most tokens that the operator for single queries takes, each as a sequence.
const MAX_QUERIES: i64 = 256;

/// The vendor's operators.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kernel {
    /// Any number of queries.
    Infer,
    /// One query per sequence.
    Incre,
}

/// The operator that computes this one, of those that there are.
pub fn kernel(call: &Call<'_>, a: &Attention) -> Option<Kernel> {
    let cann = &call.stream.runtime.cann;
    if cann.math.aclnnInplaceMaskedFillScalar.plan.is_none() || !fits_shapes(a) {
        return None;
    }
    let for_tokens = is_for_tokens(&a.paging, a.k.ne[0]);
    if cann.transformer.aclnnFusedInferAttentionScoreV2.plan.is_some() {
        return (for_tokens || a.q.ne[0] * a.q.ne[1] < MAX_IN_ROW).then_some(Kernel::Infer);
    }
    let alone = a.q.ne[1] == i64::from(a.p.n_kv_heads) && for_tokens;
    let few = alone && a.paging.n_tokens <= MAX_QUERIES && a.k.dtype == ACL_FLOAT16;
    let has = cann.transformer.aclnnIncreFlashAttentionV4.plan.is_some();
    (few && has).then_some(Kernel::Incre)
}

fn fits_shapes(a: &Attention) -> bool {
    let (d, heads, kv_heads) = (a.q.ne[0], a.q.ne[1], i64::from(a.p.n_kv_heads));
    let halves = matches!(a.k.dtype, ACL_FLOAT16 | ACL_BF16) && a.k.dtype == a.v.dtype;
    let plain = a.p.softcap == 0.0 && a.p.max_bias <= 0.0;
    let head = a.v.ne[0] == a.k.ne[0] && d % 16 == 0 && d <= MAX_HEAD_DIM;
    halves && plain && head && heads <= MAX_HEADS && heads / kv_heads <= MAX_SHARING
}

pub fn compute(call: &mut Call<'_>, a: &Attention, kernel: Kernel) -> Result<()> {
    if is_for_tokens(&a.paging, a.k.ne[0]) { by_token(call, a, kernel) } else { together(call, a) }
}

/// Whether to read each token's own blocks: cheaper than all blocks for all while there are few tokens per sequence.
fn is_for_tokens(p: &Paging, row: i64) -> bool {
    let blocks = p.block_size % 16 == 0 && p.block_size <= 512;
    blocks && tokens_at_a_time(p) > 0 && row <= MAX_IN_ROW && p.n_tokens <= 2 * p.n_seqs()
}

/// The operator takes a cache of no fewer blocks than all its tokens' tables have.
fn tokens_at_a_time(p: &Paging) -> i64 {
    p.n_tokens.min(p.n_blocks / p.max_blocks())
}

/// Every token is a sequence of one query. The table is as wide as the longest sequence requires, so that a cache too small for as
/// many tokens of that length takes several launches.
fn by_token(call: &mut Call<'_>, a: &Attention, kernel: Kernel) -> Result<()> {
    let p = &a.paging;
    let (n, d, heads) = (p.n_tokens, a.q.ne[0], a.q.ne[1]);
    let table = p.blocks_of_tokens(call)?;
    let sees = p.sees(call)?;
    let hidden = p.hidden(call, "hidden", &sees)?.reshape(&[p.capacity(), 1, 1, n]);
    let blind = p.blind(call)?;
    let q = call.dense(&a.q, a.k.dtype)?.reshape(&[d, heads, 1, n]);
    let out = call.temporary(a.k.dtype, &q.ne)?;
    let at_a_time = tokens_at_a_time(p);
    for start in (0..n).step_by(at_a_time as usize) {
        let n = at_a_time.min(n - start);
        let part = |t: &Operand| t.slice(t.ne.len() - 1, start, n);
        let table = Some((part(&table), vec![p.capacity(); n as usize], p.block_size));
        let cache = Cache { k: a.in_blocks(&a.k), v: a.in_blocks(&a.v), table };
        let (q, hidden, out) = (part(&q), part(&hidden), part(&out));
        match kernel {
            Kernel::Infer => launch(call, a, &q, &cache, &hidden, &out)?,
            Kernel::Incre => launch_incre(call, a, &q, &cache, &hidden, &out)?,
        }
    }
    finish(call, a, &out, &blind)
}

/// Slots of a block that suit the operator: what both of its ways take, and what the vendor's page recommends; 0: any.
pub fn block_size(cann: &Cann) -> u32 {
    if cann.transformer.aclnnFusedInferAttentionScoreV2.plan.is_some() { 128 } else { 0 }
}

/// Whether the operator reads the blocks of all sequences where they are. For several queries of a sequence it takes blocks of
/// 128 slots or a multiple up to 512 (the page of FusedInferAttentionScoreV2, 8.0 to 9.1; 1024 in the tiling of 8.5), in a cache
/// of layout [block][slot][head] for queries of layout BSND, and no fewer blocks than the table has
/// (`CheckPATypeAndShape` in prompt_flash_attention_tiling.cpp of ops-transformer, 8.5).
fn reads_blocks(p: &Paging, row: i64) -> bool {
    let blocks = p.block_size % 128 == 0 && p.block_size <= 512;
    blocks && p.n_seqs() * p.max_blocks() <= p.n_blocks && row <= MAX_IN_ROW
}

/// One sequence of all tokens over the keys of all sequences: lengths per sequence would have to be on the host, and sequences
/// padded to the same number of queries cost as many products.
fn together(call: &mut Call<'_>, a: &Attention) -> Result<()> {
    let p = &a.paging;
    let (n, d, heads, kv_heads) = (p.n_tokens, a.q.ne[0], a.q.ne[1], i64::from(a.p.n_kv_heads));
    let blocks = p.blocks(call)?;
    let sees = p.sees_all(call)?;
    let n_keys = p.capacity() * p.n_seqs();
    let hidden = p.hidden(call, "all hidden", &sees)?.reshape(&[n_keys, n, 1, 1]);
    let blind = p.blind(call)?;
    let q = call.dense(&a.q, a.k.dtype)?.reshape(&[d, heads, n, 1]);
    let cache = if reads_blocks(p, a.k.ne[0]) {
        let table = blocks.reshape(&[p.max_blocks() * p.n_seqs(), 1]);
        Cache { k: a.in_blocks(&a.k), v: a.in_blocks(&a.v), table: Some((table, vec![n_keys], p.block_size)) }
    } else {
        let (k, v) = (a.gathered(call, &a.k, &blocks)?, a.gathered(call, &a.v, &blocks)?);
        let split = |t: &Operand| t.reshape(&[d, kv_heads, n_keys, 1]);
        Cache { k: split(&k), v: split(&v), table: None }
    };
    let out = call.temporary(a.k.dtype, &q.ne)?;
    launch(call, a, &q, &cache, &hidden, &out)?;
    finish(call, a, &out, &blind)
}

/// Keys and values, and for those in blocks: the table, lengths, and slots of a block.
struct Cache {
    k: Operand,
    v: Operand,
    table: Option<(Operand, Vec<i64>, i64)>,
}

/// Layout BSND: [head_dim, n_heads, n_queries, n_sequences], inner first. Mask: true hides.
fn launch(
    call: &mut Call<'_>,
    a: &Attention,
    q: &Operand,
    cache: &Cache,
    hidden: &Operand,
    out: &Operand,
) -> Result<()> {
    let (heads, kv_heads) = (a.q.ne[1], i64::from(a.p.n_kv_heads));
    let (k, v) =
        (call.tensors(std::slice::from_ref(&cache.k))?, call.tensors(std::slice::from_ref(&cache.v))?);
    let (q, out, mask) = (call.tensor(q)?, call.tensor(out)?, call.tensor(hidden)?);
    let (none, ints) = (std::ptr::null::<aclTensor>(), std::ptr::null::<aclIntArray>());
    let (table, lens, block_size) = match &cache.table {
        Some((table, lens, block_size)) => {
            (call.tensor(table)?.cast_const(), call.ints(lens)?.cast_const(), *block_size)
        }
        None => (none, ints, 0),
    };
    let layout = c"BSND".as_ptr().cast_mut();
    let scale = f64::from(a.p.scale);
    // No causal rule of its own: the mask has all of it.
    let (far, sparse, precise) = (i64::from(i32::MAX), 0, 0);
    run!(
        call,
        transformer.aclnnFusedInferAttentionScoreV2(
            q,
            k,
            v,
            none,
            mask,
            ints,
            lens,
            none,
            none,
            none,
            none,
            none,
            none,
            none,
            table,
            none,
            none,
            none,
            none,
            none,
            none,
            none,
            none,
            ints,
            heads,
            scale,
            far,
            far,
            layout,
            kv_heads,
            sparse,
            precise,
            block_size,
            0,
            false,
            0,
            0,
            out,
            std::ptr::null_mut()
        )
    )
}

/// As [`launch`], of one query per sequence and as many heads in the cache as in the query.
fn launch_incre(
    call: &mut Call<'_>,
    a: &Attention,
    q: &Operand,
    cache: &Cache,
    hidden: &Operand,
    out: &Operand,
) -> Result<()> {
    let Some((table, lens, block_size)) = &cache.table else {
        return Err(Error::unsupported("single queries without a block table"));
    };
    let (k, v) =
        (call.tensors(std::slice::from_ref(&cache.k))?, call.tensors(std::slice::from_ref(&cache.v))?);
    let (q, out, mask) = (call.tensor(q)?, call.tensor(out)?, call.tensor(hidden)?);
    let (table, lens, no) = (call.tensor(table)?, call.ints(lens)?, std::ptr::null::<aclTensor>());
    let (heads, scale, layout) = (a.q.ne[1], f64::from(a.p.scale), c"BSND".as_ptr().cast_mut());
    let block_size = *block_size;
    // No heads that share, no padding, nothing quantised; exact.
    run!(
        call,
        transformer.aclnnIncreFlashAttentionV4(
            q, k, v, no, mask, lens, no, no, no, no, no, no, no, table, no, heads, scale, layout, 0,
            block_size, 0, out
        )
    )
}

/// Tokens that see nothing have zeros; the operator leaves them undefined.
fn finish(call: &mut Call<'_>, a: &Attention, out: &Operand, blind: &Operand) -> Result<()> {
    let rows = out.reshape(&[a.y.ne[0], a.y.ne[1]]);
    let (t, mask, zero) = (call.tensor(&rows)?, call.tensor(&blind.with_dim(0))?, call.float(0.0)?);
    run!(call, math.aclnnInplaceMaskedFillScalar(t, mask, zero))?;
    call.copy(&rows, &a.y)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_tokens_read_their_own_blocks() {
        let p = |n_tokens, n_seqs, block_size| Paging::sized(n_tokens, n_seqs, block_size);
        assert!(is_for_tokens(&p(1, 1, 16), 1024));
        assert!(is_for_tokens(&p(2, 2, 32), 1024));
        assert!(is_for_tokens(&p(3, 3, 32), 1024), "12 blocks of a cache of 8, in two launches");
        assert_eq!([1, 2, 3].map(|n| tokens_at_a_time(&p(n, 3, 32))), [1, 2, 2]);
        let mut small = p(1, 1, 16);
        small.n_blocks = 3;
        assert!(!is_for_tokens(&small, 1024), "4 blocks of a cache of 3");
        assert!(!is_for_tokens(&p(512, 1, 16), 1024), "a prompt");
        assert!(!is_for_tokens(&p(1, 1, 4), 1024), "blocks too small");
        assert!(!is_for_tokens(&p(1, 1, 16), 70_000), "rows too long");
    }

    #[test]
    fn prompts_read_blocks_of_multiples_of_128() {
        let reads = |n_seqs, block_size| reads_blocks(&Paging::sized(100, n_seqs, block_size), 1024);
        assert!(reads(1, 128) && reads(2, 256) && reads(1, 512));
        assert!(!reads(1, 16) && !reads(1, 64) && !reads(1, 192) && !reads(1, 1024));
        assert!(!reads(3, 128), "12 blocks of a cache of 8");
        assert!(!reads_blocks(&Paging::sized(100, 1, 128), 70_000), "rows too long");
    }
}
