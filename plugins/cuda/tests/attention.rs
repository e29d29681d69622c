//! Attention of few tokens: each kernel reached and right, for every cache and number of heads that share a KV head, over
//! keys in one part and in several. Kernels run as plain C++: nothing here shows what a real card does.

mod common;
#[path = "../../cann/tests/common/placed.rs"]
mod placed;
#[path = "common/prompt.rs"]
mod prompt;

use llmrt_abi::{DType, op::AttentionParams};
use prompt::{Prompt, prompt};

/// Decodes of different lengths, one of which ends with a block, and a row that is not in use.
fn decode() -> Prompt {
    Prompt { seqs: vec![(75, 1), (16, 1), (0, 0), (9, 2), (1, 1)], n_unused: 2, ..prompt() }
}

/// The error is at most that of sums in another order.
fn check(p: &Prompt, name: &str, kernel: &str) {
    p.check(90, name, kernel, 1e-10);
    p.check(75, name, kernel, 1e-10);
}

#[test]
fn every_cache_is_read_for_every_number_of_heads_that_share_a_kv_head() {
    use DType::*;
    for cache in [F16, BF16, F32, Q8_0] {
        for (heads, together) in [((4, 4), 1), ((4, 2), 2), ((3, 1), 4), ((5, 1), 8), ((36, 4), 8)] {
            let p = Prompt { heads, cache: (cache, cache), ..decode() };
            let kernel = format!("attention_{cache}_{together}").to_lowercase();
            check(&p, &format!("{heads:?} heads, a cache of {cache}"), &kernel);
        }
    }
}

#[test]
fn heads_of_every_size_are_read() {
    use DType::*;
    for dims in [(8, 8), (64, 72), (80, 80), (128, 72), (192, 128), (256, 256)] {
        for cache in [F16, F32, Q8_0] {
            let p = Prompt { dims, heads: (8, 4), cache: (cache, cache), ..decode() };
            check(&p, &format!("heads of {dims:?}, {cache}"), &format!("attention_{cache}_2").to_lowercase());
        }
    }
}

/// Multi-head latent attention: all heads share one, whose V are the first numbers of K.
#[test]
fn latent_rows_are_read_for_all_heads() {
    for cache in [DType::F16, DType::BF16, DType::F32, DType::Q8_0] {
        for (heads, dims) in [(16, (576, 512)), (5, (288, 256)), (3, (768, 64))] {
            let p = Prompt { dims, heads: (heads, 1), cache: (cache, cache), v_of_k: true, ..decode() };
            let kernel = format!("attention_{cache}_wide").to_lowercase();
            check(&p, &format!("{heads} heads of {dims:?}, {cache}"), &kernel);
        }
    }
}

/// Types that differ, rows and heads that are no multiple of 16 bytes apart, and rows that begin between.
#[test]
fn what_cannot_be_read_in_sixteens_is_read_number_by_number() {
    use DType::*;
    for (cache, dims, gap) in [
        ((F16, F32), (64, 64), 0),
        ((Q8_0, F16), (64, 64), 0),
        ((F16, F16), (7, 5), 0),
        ((BF16, BF16), (40, 36), 0),
        ((F16, F16), (64, 64), 2),
        ((F16, F16), (64, 64), 4),
        ((F32, F32), (256, 256), 2),
    ] {
        let p = Prompt { dims, cache, gap, tail: gap, ..decode() };
        check(&p, &format!("{cache:?}, heads of {dims:?}, {gap} numbers before"), "attention_any");
    }
    // Rows that begin at a multiple of 16 bytes but for their distance.
    check(&Prompt { tail: 4, ..decode() }, "4 numbers after", "attention_any");
    let p = Prompt { gap: 8, ..decode() };
    check(&p, "8 numbers before", "attention_f16_2");
    // Blocks of 34 bytes begin at even addresses.
    let p = Prompt { gap: 32, tail: 32, cache: (Q8_0, Q8_0), ..decode() };
    check(&p, "a block before", "attention_q8_0_2");
}

/// Texts of which every part has keys, and parts without: what a window hides, and a short text beside long ones.
#[test]
fn keys_in_parts_are_put_together() {
    for (block, window, sinks) in [(16, 0, false), (5, 0, true), (16, 333, false), (16, 130, true)] {
        for heads in [(2, 1), (8, 1)] {
            let params = AttentionParams { window, ..Default::default() };
            let seqs = vec![(1100, 1), (3, 1), (530, 2), (0, 0)];
            let p = Prompt { heads, block, params, sinks, seqs, n_unused: 1, ..decode() };
            let name = format!("{heads:?} heads, blocks of {block}, window {window}, sinks {sinks}");
            for kernel in [format!("attention_f16_{}", heads.0).as_str(), "attention_parts"] {
                check(&p, &name, kernel);
            }
        }
    }
}

#[test]
fn scores_are_bent_and_hidden() {
    let all = AttentionParams { max_bias: 4.0, softcap: 2.0, window: 21, ..Default::default() };
    for (name, params) in [
        ("window of 1", AttentionParams { window: 1, ..Default::default() }),
        ("window of 30", AttentionParams { window: 30, ..Default::default() }),
        ("soft cap", AttentionParams { softcap: 1.5, ..Default::default() }),
        ("ALiBi", AttentionParams { max_bias: 8.0, ..Default::default() }),
        ("all at once", all),
    ] {
        for sinks in [false, true] {
            let p = Prompt { params, sinks, heads: (6, 2), dims: (128, 128), ..decode() };
            check(&p, &format!("{name}, sinks {sinks}"), "attention_f16_4");
        }
    }
}

/// More sequences than a warp has lanes, and tokens before the first and after the last of them.
#[test]
fn a_token_finds_its_sequence_among_many() {
    let seqs: Vec<_> = (0..70).map(|i| (1 + i % 37, if i % 8 == 0 { 0 } else { 1 })).collect();
    let many = Prompt { seqs: seqs.clone(), loose: true, ..decode() };
    check(&many, "70 decodes", "attention_f16_2");
    // With a prompt among them there are tiles, and a block finds the token that is for none.
    let beside = seqs.into_iter().enumerate().map(|(i, s)| if i == 40 { (90, 50) } else { s });
    let p = Prompt { seqs: beside.collect(), ..many };
    p.check(90, "69 decodes and a prompt", "attention_f16_2", 3e-7);
}

/// q, scaled, is a number of 32 bits whatever q is.
#[test]
fn queries_of_any_size_lose_nothing() {
    for size in [1e-20, 1e7] {
        check(&Prompt { size, ..decode() }, &format!("q of {size:e}"), "attention_f16_2");
    }
}
