//! Fused attention over blocks: sizes, layouts and masks that its first phase takes.

use super::machine::Machine;
use cann_simulator::sys::*;
use std::ptr::{null, null_mut};

/// One sequence of queries over a cache of four blocks, of which its table has two.
struct Case {
    config: &'static str,
    n_queries: i64,
    heads: i64,
    block_size: i64,
    /// Heads stand before positions in the query, and in the cache.
    heads_first: (bool, bool),
    mask: Option<i64>,
    len: i64,
}

const PROMPT: Case = Case {
    config: "",
    n_queries: 100,
    heads: 2,
    block_size: 128,
    heads_first: (false, false),
    mask: Some(256),
    len: 256,
};

/// What the first phase answers.
fn answer(case: Case) -> i32 {
    let Case { config, n_queries, heads, block_size, heads_first, mask, len } = case;
    let m = Machine::new(config);
    let half = |dims: &[i64]| m.tensor(ACL_FLOAT16, dims, m.alloc(2 * dims.iter().product::<i64>() as usize));
    let by = |first, n| if first { [1, heads, n, 16] } else { [1, n, heads, 16] };
    let (q, out) = (half(&by(heads_first.0, n_queries)), half(&by(heads_first.0, n_queries)));
    let cache = |_| {
        let t = match heads_first.1 {
            true => half(&[4, heads, block_size, 16]),
            false => half(&[4, block_size, 16 * heads]),
        };
        // SAFETY: one live tensor.
        unsafe { m.t.object.aclCreateTensorList.unwrap()([t.cast_const()].as_ptr(), 1) }
    };
    let [k, v] = [0, 1].map(cache);
    let mask = mask.map_or(null_mut(), |width| {
        m.tensor(ACL_BOOL, &[1, 1, n_queries, width], m.alloc((n_queries * width) as usize))
    });
    let table = m.tensor(ACL_INT32, &[1, 2], m.alloc(8));
    let layout = if heads_first.0 { c"BNSD" } else { c"BSND" }.as_ptr().cast_mut();
    let (n, lens, far) = (null(), m.ints(&[len]), i64::from(i32::MAX));
    plan!(
        m,
        transformer.aclnnFusedInferAttentionScoreV2(
            q,
            k,
            v,
            n,
            mask,
            null(),
            lens,
            n,
            n,
            n,
            n,
            n,
            n,
            n,
            table,
            n,
            n,
            n,
            n,
            n,
            n,
            n,
            n,
            null(),
            heads,
            1.0,
            far,
            far,
            layout,
            heads,
            0,
            0,
            block_size,
            0,
            false,
            0,
            0,
            out,
            null_mut()
        )
    )
    .0
}

const REFUSED: i32 = ACLNN_ERR_INNER_TILING_ERROR;

#[test]
fn several_queries_take_blocks_of_multiples_of_128_and_one_query_of_16() {
    for (block_size, one, several) in [
        (128, 0, 0),
        (512, 0, 0),
        (16, 0, REFUSED),
        (64, 0, REFUSED),
        (192, 0, REFUSED),
        (1024, REFUSED, REFUSED),
    ] {
        let case = |n_queries| Case {
            n_queries,
            block_size,
            len: 2 * block_size,
            mask: Some(2 * block_size),
            ..PROMPT
        };
        assert_eq!((answer(case(1)), answer(case(100))), (one, several), "{block_size}");
    }
}

#[test]
fn a_cache_has_its_heads_last_where_the_query_has() {
    for (heads_first, expected) in
        [((false, false), 0), ((true, true), 0), ((true, false), 0), ((false, true), REFUSED)]
    {
        assert_eq!(answer(Case { heads_first, ..PROMPT }), expected, "{heads_first:?}");
    }
}

#[test]
fn a_mask_covers_whole_blocks() {
    for (len, width, expected) in [(256, 256, 0), (200, 256, 0), (200, 200, REFUSED), (100, 128, 0)] {
        assert_eq!(answer(Case { len, mask: Some(width), ..PROMPT }), expected, "{len} {width}");
    }
    assert_eq!(answer(Case { len: 200, mask: None, ..PROMPT }), 0);
}

/// 256 heads of 256 are rows of 65 536 elements.
#[test]
fn rows_of_queries_are_bounded_before_8_5() {
    for (config, expected) in [("release=8.1", ACLNN_ERR_INNER_TILING_ERROR), ("release=8.5", 0)] {
        assert_eq!(answer_wide(config, 100), expected, "{config}");
        assert_eq!(answer_wide(config, 1), 0, "{config}: one query");
    }
}

/// 256 heads of 256 over one KV head, without blocks.
fn answer_wide(config: &str, n_queries: i64) -> i32 {
    let m = Machine::new(config);
    let half = |dims: &[i64]| m.tensor(ACL_FLOAT16, dims, m.alloc(2 * dims.iter().product::<i64>() as usize));
    let (q, out) = (half(&[1, n_queries, 256, 256]), half(&[1, n_queries, 256, 256]));
    let [k, v] = [0, 1].map(|_| {
        let t = half(&[1, 8, 4, 256]);
        // SAFETY: one live tensor.
        unsafe { m.t.object.aclCreateTensorList.unwrap()([t.cast_const()].as_ptr(), 1) }
    });
    let (n, far, layout) = (null(), i64::from(i32::MAX), c"BSND".as_ptr().cast_mut());
    plan!(
        m,
        transformer.aclnnFusedInferAttentionScoreV2(
            q,
            k,
            v,
            n,
            null_mut(),
            null(),
            null(),
            n,
            n,
            n,
            n,
            n,
            n,
            n,
            null_mut(),
            n,
            n,
            n,
            n,
            n,
            n,
            n,
            n,
            null(),
            256,
            1.0,
            far,
            far,
            layout,
            4,
            0,
            0,
            0,
            0,
            false,
            0,
            0,
            out,
            null_mut()
        )
    )
    .0
}
