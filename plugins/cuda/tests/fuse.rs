//! Neighbouring nodes as one kernel: that it happens, that all they write has the same bits as without it, that
//! overlapping memory is detected, and that it can be switched off.

mod common;
#[path = "common/fused.rs"]
mod fused;
#[path = "../../cann/tests/common/placed.rs"]
mod placed;

use common::{Bound, Machine, bind};
use fused::{check, check_workspace, floats, run};
use llmrt_abi::DType;
use llmrt_abi::op::{AttentionParams, RopeParams};
use llmrt_graph::ops::case::Case;
use llmrt_graph::{Activation, Graph, Kind, Paged, Role, Tensor};

#[test]
fn a_sum_and_its_norm_are_one_kernel() {
    for n_rows in [1, 3] {
        check([1, 2], |g, _| {
            let [a, b] = ["a", "b"].map(|name| floats(g, name, &[300, n_rows]));
            let (sum, w) = (g.add(a, b), floats(g, "w", &[300]));
            g.rms_norm(sum, w, 1e-5);
        });
    }
    check([1, 2], |g, _| {
        let [a, b] = ["a", "b"].map(|name| floats(g, name, &[40, 3]));
        let sum = g.add(a, b);
        let [w, bias] = ["w", "bias"].map(|name| floats(g, name, &[40]));
        g.layer_norm(sum, w, bias, 1e-5);
    });
}

#[test]
fn a_norm_and_its_weight_are_one_kernel_with_or_without_a_sum() {
    check([1, 2], |g, _| {
        let (x, w) = (floats(g, "x", &[70, 3]), floats(g, "w", &[70]));
        let y = g.rms_norm(x, None, 1e-5);
        g.mul(y, w);
    });
    check([1, 3], |g, _| {
        let [a, b] = ["a", "b"].map(|name| floats(g, name, &[70, 2, 2]));
        let sum = g.add(a, b);
        let (y, w) = (g.rms_norm(sum, None, 1e-5), floats(g, "w", &[70]));
        g.mul(y, w);
    });
}

#[test]
fn what_only_looks_like_it_stays_apart() {
    // A bias is no residual.
    check([2, 2], |g, _| {
        let (a, b) = (floats(g, "a", &[40, 3]), floats(g, "b", &[40]));
        let (sum, w) = (g.add(a, b), floats(g, "w", &[40]));
        g.rms_norm(sum, w, 1e-5);
    });
    // The norm is of something else.
    check([2, 2], |g, _| {
        let [a, b] = ["a", "b"].map(|name| floats(g, name, &[40]));
        g.add(a, b);
        g.rms_norm(a, b, 1e-5);
    });
    // The weight is the sum itself.
    check([2, 2], |g, _| {
        let [a, b] = ["a", "b"].map(|name| floats(g, name, &[40]));
        let sum = g.add(a, b);
        g.rms_norm(sum, sum, 1e-5);
    });
}

/// A norm that is put where the sum's operand was, as a memory plan does: taken together only where each row is read
/// before it is written.
#[test]
fn memory_that_is_used_again_is_seen() {
    for (n_rows, offset, launches) in [(3, 0, 1), (3, 64, 2), (1, 64, 1), (3, 4096, 1)] {
        let mut tensors = None;
        let case = Case::new(format!("{n_rows} rows, {offset} bytes on"), |g, _| {
            let [a, b] = ["a", "b"].map(|name| floats(g, name, &[64, n_rows]));
            let (sum, w) = (g.add(a, b), floats(g, "w", &[64]));
            tensors = Some((a, g.rms_norm(sum, w, 1e-5)));
        });
        let (a, y) = tensors.unwrap();
        let place = |bound: &mut Bound| bound.share(a, y, 8192, offset);
        let (fused, plain) = (run(&case, "1", place), run(&case, "0", place));
        assert_eq!([fused.0, plain.0], [launches, 2], "{}", case.name);
        assert!(fused.1 == plain.1, "{}: other bits", case.name);
    }
}

/// Heads of 16 of `n_tokens`, q and k turned, k and v written to caches at the first ids.
fn heads(g: &mut Graph, ints: &mut Vec<(Tensor, Vec<i32>)>, cache: DType, ids: &[i32], mode: u32) {
    let n = ids.len() as u64;
    let [q, k, v] = [("q", 4), ("k", 2), ("v", 2)].map(|(name, h)| floats(g, name, &[16, h, n]));
    let positions = g.input("positions", DType::I32, &[n]);
    let slots = g.input("slots", DType::I32, &[n]);
    ints.push((positions, (5..).take(ids.len()).collect()));
    ints.push((slots, ids.to_vec()));
    let [k_cache, v_cache] = ["kc", "vc"].map(|name| g.state(name, cache, &[32, 80], Role::KCache));
    let p = RopeParams {
        n_dims: 12,
        mode,
        freq_base: 10000.0,
        freq_scale: 1.0,
        attn_factor: 1.0,
        ..Default::default()
    };
    g.rope(q, positions, None, &p);
    let k = g.rope(k, positions, None, &p);
    g.set_rows(k_cache, k, slots);
    g.set_rows(v_cache, v, slots);
}

#[test]
fn heads_are_turned_and_written_at_once() {
    for cache in [DType::F32, DType::F16, DType::BF16] {
        for mode in [0, 2] {
            check([1, 4], |g, ints| heads(g, ints, cache, &[3], mode));
            check([1, 4], |g, ints| heads(g, ints, cache, &[7, -1, 7, 80, 2], mode));
        }
    }
    check([3, 4], |g, ints| heads(g, ints, DType::Q8_0, &[3, 4], 2));
    let many: Vec<i32> = (0..65).collect();
    check([3, 4], |g, ints| heads(g, ints, DType::F16, &many, 2));
}

/// A layer of a transformer of `n` tokens: 64 wide, four heads, two of K and V, and the next layer's norm.
fn layer(g: &mut Graph, ints: &mut Vec<(Tensor, Vec<i32>)>, dtype: DType, n: u64) {
    let weight = |g: &mut Graph, name: &str, dims: &[u64]| g.weight(name, dtype, dims, Role::Matrix);
    let mut ids = |g: &mut Graph, name: &str, values: Vec<i32>| {
        let t = g.input(name, DType::I32, &[values.len() as u64]);
        ints.push((t, values));
        t
    };
    let positions = ids(g, "positions", (0..n as i32).collect());
    let slots = ids(g, "slots", (3..).take(n as usize).collect());
    let seq_lens = ids(g, "seq_lens", vec![n as i32]);
    let query_starts = ids(g, "query_starts", vec![0, n as i32]);
    let block_table = g.input("block_table", DType::I32, &[32, 1]);
    ints.push((block_table, (3..35).collect()));
    let paged = Paged { block_table, seq_lens, query_starts };
    let [k_cache, v_cache] = ["kc", "vc"].map(|name| g.state(name, DType::F16, &[32, 80], Role::KCache));
    let p = RopeParams {
        n_dims: 16,
        mode: 2,
        freq_base: 1e4,
        freq_scale: 1.0,
        attn_factor: 1.0,
        ..Default::default()
    };
    let x = floats(g, "x", &[64, n]);
    let x = g.scale(x, 2.0);

    let w = floats(g, "attn_norm", &[64]);
    let h = g.rms_norm(x, w, 1e-5);
    let [q, k, v] = [("wq", 64, 4), ("wk", 32, 2), ("wv", 32, 2)].map(|(name, m, heads)| {
        let w = weight(g, name, &[64, m]);
        let y = g.mul_mat(w, h);
        g.split_heads(y, heads)
    });
    let (q, k) = (g.rope(q, positions, None, &p), g.rope(k, positions, None, &p));
    let (k_cache, v_cache) = (g.set_rows(k_cache, k, slots), g.set_rows(v_cache, v, slots));
    let attention = AttentionParams { n_kv_heads: 2, block_size: 1, scale: 0.25, ..Default::default() };
    let attn = g.attention(q, k_cache, v_cache, &paged, &attention);
    let w = weight(g, "wo", &[64, 64]);
    let attn = g.mul_mat(w, attn);
    let x = g.add(attn, x);

    let w = floats(g, "ffn_norm", &[64]);
    let h = g.rms_norm(x, w, 1e-5);
    let [up, gate] = ["up", "gate"].map(|name| {
        let w = weight(g, name, &[64, 96]);
        g.mul_mat(w, h)
    });
    let h = g.glu(Activation::Silu, gate, Some(up));
    let w = weight(g, "down", &[96, 64]);
    let ffn = g.mul_mat(w, h);
    let x = g.add(ffn, x);
    let w = floats(g, "next_norm", &[64]);
    g.rms_norm(x, w, 1e-5);
}

/// In memory that is used again as soon as it may be: the same bytes are left everywhere.
#[test]
fn a_layer_in_planned_memory_takes_fewer_kernels_and_is_the_same() {
    let all = [DType::F32, DType::Q8_0, DType::Q4_0].into_iter();
    for (dtype, n) in all.flat_map(|dtype| [1, 2, 5, 70].map(|n| (dtype, n))) {
        let case = Case::new(format!("{n} tokens, {dtype}"), |g, ints| layer(g, ints, dtype, n));
        let run = |fuse: &str| {
            let m = Machine::with_options("queue=late", &[("cuda.fuse", fuse)]);
            let (card, stream) = (m.card(0), m.card(0).stream(1).unwrap());
            let mut bound = bind(&card, &case.graph, &case.values(7).unwrap()).unwrap();
            let arena = bound.plan(&card, &case.graph);
            let before = m.count("launch");
            stream.compute(&bound.raw).unwrap();
            stream.synchronize().unwrap();
            let states = case.graph.tensors.iter().enumerate().filter(|(_, def)| def.kind == Kind::State);
            let states = states.map(|(i, _)| bound.buffer(Tensor(i as u32)).clone());
            let bytes: Vec<Vec<u8>> = states
                .chain([arena])
                .map(|buffer| {
                    let mut bytes = vec![0; buffer.size() as usize];
                    buffer.read(0, &mut bytes).unwrap();
                    bytes
                })
                .collect();
            assert_eq!(m.reports(), [""; 0], "{}", case.name);
            check_workspace(&card, &stream, &case);
            (m.count("launch") - before, bytes)
        };
        let (fused, plain) = (run("1"), run("0"));
        println!("{}: {} launches, {} without", case.name, fused.0, plain.0);
        assert!(fused.1 == plain.1, "{}: other bits", case.name);
        // Both sums with their norms; of heads and caches at least two. Packed, x of five products is there already, and gate and
        // up are one; halves of x are there for four.
        let fewer = match (n <= 64, dtype) {
            (true, DType::F32) => 4,
            (true, _) => 11,
            (false, DType::F32) => 1,
            (false, _) => 5,
        };
        assert!(fused.0 + fewer <= plain.0, "{}: {} launches, {} without", case.name, fused.0, plain.0);
    }
}

#[test]
fn a_rope_of_a_rope_stays_after_it() {
    check([2, 2], |g, ints| {
        let x = floats(g, "x", &[16, 2, 1]);
        let positions = g.input("positions", DType::I32, &[1]);
        ints.push((positions, vec![9]));
        let p = RopeParams {
            n_dims: 16,
            freq_base: 100.0,
            freq_scale: 1.0,
            attn_factor: 1.0,
            ..Default::default()
        };
        let x = g.rope(x, positions, None, &p);
        g.rope(x, positions, None, &p);
    });
}
