//! softmax(q · kᵀ · scale + shift, masked) · v, with a cache in pieces or in blocks.

use super::attend::{Rule, Shape, mask_rows, run};
use super::check::*;
use super::*;
use crate::args::Args;
use crate::fault::Answer;
use crate::plan::Kernel;
use crate::release::Release;
use crate::tensor::Tensor;

ops! { cann_transformer;
    #[cube] aclnnFusedInferAttentionScoreV2(
        query: In, key: List, value: List, pse_shift_opt: In, mask_opt: In, seq_lens_opt: Ints, seq_lens_kv_opt: Ints,
        dequant_scale1_opt: In, quant_scale1_opt: In, dequant_scale2_opt: In, quant_scale2_opt: In, quant_offset2_opt: In,
        antiquant_scale_opt: In, antiquant_offset_opt: In, block_table_opt: In, query_padding_opt: In, kv_padding_opt: In,
        key_antiquant_scale_opt: In, key_antiquant_offset_opt: In, value_antiquant_scale_opt: In,
        value_antiquant_offset_opt: In, key_prefix_opt: In, value_prefix_opt: In, prefix_len_opt: Ints, n_heads: i64,
        scale: f64, pre_tokens: i64, next_tokens: i64, layout: Text, n_kv_heads: i64, sparse_mode: i64, inner_precise: i64,
        block_size: i64, antiquant_mode: i64, lse_flag: bool, key_antiquant_mode: i64, value_antiquant_mode: i64, out: Out,
        lse_opt: Out,
    ) "" => |a| {
        let lens = |name: &str| a.ints(name).ok().map(<[i64]>::to_vec);
        let rule = Rule {
            q_lens: lens("seq_lens_opt"),
            kv_lens: lens("seq_lens_kv_opt"),
            sparse: a.int("sparse_mode")?,
            reach: (a.int("pre_tokens")?, a.int("next_tokens")?),
            repair: a.int("inner_precise")? & 2 != 0,
            lse: a.int("lse_flag")? != 0,
        };
        let unused = ["query_padding_opt", "kv_padding_opt", "key_prefix_opt", "value_prefix_opt", "antiquant_scale_opt"];
        tiles(unused.iter().all(|name| a.opt(name).is_none()), || "the simulator has none of the quantised forms".into())?;
        tiles((0..=4).contains(&rule.sparse), || format!("sparse_mode {}", rule.sparse))?;
        attend(a, rule)
    };
    #[cube] aclnnIncreFlashAttentionV4(
        query: In, key: List, value: List, pse_shift_opt: In, mask_opt: In, seq_lens_opt: Ints, dequant_scale1_opt: In,
        quant_scale1_opt: In, dequant_scale2_opt: In, quant_scale2_opt: In, quant_offset2_opt: In, antiquant_scale_opt: In,
        antiquant_offset_opt: In, block_table_opt: In, kv_padding_opt: In, n_heads: i64, scale: f64, layout: Text,
        n_kv_heads: i64, block_size: i64, inner_precise: i64, out: Out,
    ) "P" => |a| {
        let shared = a.int("n_kv_heads")? != 0;
        tiles(a.world.chip.bf16 || !shared, || "n_kv_heads has to be 0 on this chip".into())?;
        let kv_lens = a.ints("seq_lens_opt").ok().map(<[i64]>::to_vec);
        let repair = a.int("inner_precise")? & 2 != 0;
        let rule = Rule { q_lens: None, kv_lens, sparse: 0, reach: (i64::MAX / 2, i64::MAX / 2), repair, lse: false };
        let shape = Shape::of(a)?;
        tiles(shape.q_len == 1, || format!("{} queries, expected 1", shape.q_len))?;
        attend(a, rule)
    };
}

fn attend(a: &Args, rule: Rule) -> Answer<Kernel> {
    let halves: Types = if a.world.chip.bf16 { &[ACL_FLOAT16, ACL_BF16] } else { &[ACL_FLOAT16] };
    let (shape, q) = (Shape::of(a)?, a.of("query", halves)?);
    a.whole("out")?;
    valid(a.shaped("out", halves, &q.dims)?.dtype == q.dtype, || "`out` has another dtype".into())?;
    let (keys, values) = (a.list("key")?, a.list("value")?);
    let same = keys.iter().chain(values).all(|t| t.dtype == q.dtype && t.is_contiguous());
    valid(same && keys.len() == values.len() && !keys.is_empty(), || {
        "keys and values with gaps, or of another dtype".into()
    })?;
    // For several queries the page has the limit as a requirement before 8.5, from then on as advice.
    let row = shape.heads * shape.head_dim;
    let bounded = a.world.config.release < Release::V8_5 && shape.q_len > 1 && !shape.heads_first;
    tiles(!bounded || row < 65_535, || format!("queries of {row} elements"))?;
    let paged = a.opt("block_table_opt").is_some();
    let capacity = if paged { check_blocks(a, &shape, &rule)? } else { check_pieces(keys, &shape)? };
    let longest = rule.kv_lens.as_ref().map_or(capacity, |lens| lens.iter().copied().max().unwrap_or(0));
    let in_range = longest <= capacity
        && [&rule.q_lens, &rule.kv_lens]
            .into_iter()
            .flatten()
            .all(|l| l.len() == 1 || l.len() as i64 == shape.batch);
    valid(in_range, || format!("lengths {:?} with room for {capacity}", rule.kv_lens))?;
    if let Some(pse) = a.opt("pse_shift_opt") {
        let fits = matches!(pse.dims[..], [b, n, s, l] if (b == 1 || b == shape.batch) && n == shape.heads && s == shape.q_len && l >= longest);
        valid(fits && pse.dtype == q.dtype, || format!("`pse_shift` is {:?}", pse.dims))?;
    }
    if let Some(mask) = a.opt("mask_opt") {
        valid(matches!(mask.dtype, ACL_BOOL | ACL_INT8 | ACL_UINT8), || {
            format!("`mask` has dtype {}", mask.dtype)
        })?;
        let fits = match rule.sparse {
            0 | 1 => {
                mask.dims.ends_with(&[])
                    && mask_rows(mask, &shape).is_some()
                    && mask.dims.last().is_some_and(|l| *l >= longest)
            }
            _ => mask.dims.ends_with(&[2048, 2048]),
        };
        valid(fits, || format!("`mask` is {:?}", mask.dims))?;
    }
    let scale = a.double("scale")?;
    Ok(kernel(move |r| run(r, &shape, &rule, scale, capacity)))
}

fn check_pieces(keys: &[Tensor], s: &Shape) -> Answer<i64> {
    let dims = &keys[0].dims;
    let len = match (s.heads_first, dims.as_slice()) {
        (false, [_, l, n, d]) if (*n, *d) == (s.kv_heads, s.head_dim) => Some(*l),
        (true, [_, n, l, d]) if (*n, *d) == (s.kv_heads, s.head_dim) => Some(*l),
        (false, [_, l, h]) if *h == s.kv_heads * s.head_dim => Some(*l),
        _ => None,
    };
    let batches = keys.len() == 1 && dims[0] == s.batch;
    valid(len.is_some() && batches, || {
        format!("`key` is {dims:?} with {} heads of {}", s.kv_heads, s.head_dim)
    })?;
    Ok(len.unwrap_or(0))
}

/// The vendor's page of FusedInferAttentionScoreV2 (8.0 to 9.1), and for several queries `CheckPATypeAndShape` and
/// `CheckAttenMaskShape` of prompt_flash_attention_tiling.cpp (ops-transformer, 8.5 to 9.1). Its 310P takes no block table there
/// at all; the operator is not on that chip.
fn check_blocks(a: &Args, s: &Shape, rule: &Rule) -> Answer<i64> {
    let (table, size) = (a.of("block_table_opt", &[ACL_INT32])?, a.int("block_size")?);
    valid(rule.kv_lens.is_some(), || "a block table without lengths".into())?;
    let good = if s.q_len > 1 { size % 128 == 0 } else { size % 16 == 0 };
    tiles(good && (16..=512).contains(&size), || format!("blocks of {size} with {} queries", s.q_len))?;
    let cache = &a.list("key")?[0].dims;
    valid(*cache == a.list("value")?[0].dims, || "keys and values of different dims".into())?;
    // Queries with heads last have caches with heads last.
    let fits = match cache.as_slice() {
        [_, n, h] => *n == size && *h == s.kv_heads * s.head_dim,
        [_, heads, n, d] => s.heads_first && (*heads, *n, *d) == (s.kv_heads, size, s.head_dim),
        _ => false,
    };
    tiles(fits, || format!("a cache of {cache:?} with blocks of {size}"))?;
    tiles(s.kv_heads * s.head_dim <= 65_535, || "rows of the cache over 65535".into())?;
    valid(matches!(table.dims[..], [b, _] if b == s.batch), || format!("`block_table` is {:?}", table.dims))?;
    // The cache has at least the blocks that the lengths add up to (the vendor's page of FusedInferAttentionScoreV2).
    let lens = rule.kv_lens.as_deref().unwrap_or_default();
    let of_one = if lens.len() == 1 { s.batch } else { 1 };
    let needed: i64 = lens.iter().map(|len| (len + size - 1) / size * of_one).sum();
    valid(needed <= cache[0], || format!("{needed} blocks in a cache of {}", cache[0]))?;
    // A mask has a column for every slot of the blocks that the longest sequence has.
    let slots = lens.iter().map(|len| (len + size - 1) / size * size).max().unwrap_or(0);
    let width = a.opt("mask_opt").and_then(|mask| mask.dims.last().copied());
    tiles(rule.sparse > 1 || width.is_none_or(|width| width >= slots), || {
        format!("a mask of {width:?} columns for {slots} slots")
    })?;
    Ok(table.dims[1] * size)
}
