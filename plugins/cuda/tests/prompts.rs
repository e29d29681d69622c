//! Attention of prompts on tensor cores: each kernel reached and right, on the oldest chip and on a newer one. Kernels run
//! as plain C++: nothing here shows what a real card does.

mod common;
#[path = "../../cann/tests/common/placed.rs"]
mod placed;
#[path = "common/prompt.rs"]
mod prompt;

use common::{Machine, bind};
use llmrt_abi::{DType, op::AttentionParams};
use llmrt_graph::ops::value::Value;
use llmrt_graph::{Tensor, reference};
use prompt::{Prompt, prompt};

#[test]
fn every_cache_and_head_is_read() {
    use DType::*;
    for (dims, size) in
        [((64, 64), 64), ((8, 16), 64), ((40, 40), 64), ((80, 80), 128), ((128, 72), 128), ((256, 136), 256)]
    {
        for cache in [(F16, F16), (Q8_0, F16), (F16, Q8_0), (BF16, BF16)] {
            // Blocks of Q8_0 are whole.
            let n = if cache == (F16, F16) { 2 } else { 4 };
            let p = Prompt { dims, cache, heads: (n, n / 2 * 2), ..prompt() };
            let (dtype, nmse) = if cache.0 == BF16 { ("bf16", 1e-5) } else { ("f16", 3e-7) };
            let name = format!("heads of {dims:?} in a cache of {cache:?}");
            p.check(90, &name, &format!("attention_tile_{dtype}_{size}"), nmse);
            let older = if cache.0 == BF16 {
                "attention_bf16_1".into()
            } else {
                format!("attention_tile_f16_{size}")
            };
            p.check(75, &name, &older, nmse);
        }
    }
}

#[test]
fn heads_share_kv_heads() {
    for heads in [(1, 1), (3, 3), (6, 2), (5, 1), (33, 1), (70, 1)] {
        let p = Prompt { dims: (32, 32), heads, ..prompt() };
        p.check(90, &format!("{heads:?} heads"), "attention_tile_f16_64", 3e-7);
        let alone = Prompt { seqs: vec![(90, 18)], n_unused: 2, ..p };
        alone.check(90, &format!("{heads:?} heads of one sequence"), "attention_tile_f16_64", 3e-7);
    }
}

/// Both kernels, and what puts parts together.
#[test]
fn decodes_over_many_keys_beside_a_prompt_are_split() {
    let p = Prompt { heads: (1, 1), seqs: vec![(1100, 1), (50, 20), (530, 3)], sinks: true, ..prompt() };
    for kernel in ["attention_tile_f16_64", "attention_f16_1", "attention_parts"] {
        p.check(90, "two long texts and a prompt", kernel, 3e-7);
    }
}

#[test]
fn scores_are_bent_and_hidden() {
    let all = AttentionParams { max_bias: 4.0, softcap: 2.0, window: 21, ..Default::default() };
    for (name, params) in [
        ("plain", AttentionParams::default()),
        ("window of 1", AttentionParams { window: 1, ..Default::default() }),
        ("window of 30", AttentionParams { window: 30, ..Default::default() }),
        ("soft cap", AttentionParams { softcap: 1.5, ..Default::default() }),
        ("ALiBi", AttentionParams { max_bias: 8.0, ..Default::default() }),
        ("all at once", all),
    ] {
        for sinks in [false, true] {
            let p = Prompt { params, sinks, heads: (6, 2), dims: (128, 128), ..prompt() };
            p.check(90, &format!("{name}, sinks {sinks}"), "attention_tile_f16_128", 3e-7);
        }
    }
}

/// F16 ends at 65504 and below 6e-8.
#[test]
fn queries_beyond_half_precision_lose_nothing() {
    for size in [1e-20, 1e7] {
        Prompt { size, ..prompt() }.check(90, &format!("q of {size:e}"), "attention_tile_f16_64", 3e-7);
    }
}

/// Which tokens of 4 heads of 64 are NaN when a number of q or K is: those of the token, or that see the key.
#[test]
fn nan_reaches_what_depends_on_it_and_nothing_else() {
    // The slots have a position that all tokens of a sequence see, and one that the last of them see.
    for (seqs, slots, what) in [
        (vec![(75, 40), (30, 1), (9, 5), (37, 37)], [3, 14 * 16 + 8], "prompts"),
        (vec![(30, 1), (9, 5)], [3, 2 * 16 + 6], "few tokens"),
    ] {
        let p = Prompt { seqs, n_unused: 0, ..prompt() };
        let case = p.case(what);
        let dst = case.graph.nodes.last().unwrap().dst;
        let keys = slots.map(|slot| (Tensor(1), slot * 128 + 100));
        for (t, at) in [(Tensor(0), (2 * 4 + 1) * 64 + 5)].into_iter().chain(keys) {
            let mut memory = case.values(7).unwrap();
            let value = Value::decode(case.graph.def(t), memory.bytes(t).unwrap());
            let mut numbers = value.floats().to_vec();
            numbers[at] = f32::NAN;
            memory.set(&case.graph, t, &Value::f32(value.ne, numbers)).unwrap();
            let m = Machine::new("queue=late");
            let stream = m.card(0).stream(1).unwrap();
            let bound = bind(&m.card(0), &case.graph, &memory).unwrap();
            stream.compute(&bound.raw).unwrap();
            let found = floats(&bound.read(&stream, &case.graph, dst).unwrap());
            reference::run(&case.graph, &mut memory).unwrap();
            let mut expected = floats(memory.bytes(dst).unwrap());
            if t == Tensor(0) {
                // The reference has no score then, and gives zeros.
                expected[at / 64 * 64..][..64].fill(f32::NAN);
            }
            let nans = |y: &[f32]| y.iter().map(|y| y.is_nan()).collect::<Vec<_>>();
            assert!(nans(&expected).contains(&true) && nans(&expected).contains(&false), "{what}, {at}");
            assert_eq!(nans(&found), nans(&expected), "{what}, number {at} of tensor {}", t.0);
            assert_eq!(m.reports(), [""; 0]);
        }
    }
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
}
