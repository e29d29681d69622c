//! Cases of `ssm_scan`, and numbers of ggml's.

use super::super::case::Case;
use crate::graph::Graph;
use crate::tensor::Tensor;
use llmrt_abi::DType;

/// Sizes of a case.
#[derive(Clone, Copy)]
struct Size {
    d_state: u64,
    head_dim: u64,
    n_heads: u64,
    n_groups: u64,
    n_tokens: u64,
    n_seqs: u64,
    n_states: u32,
    /// A number of a for each element of the state, as Mamba 1 has it.
    granular: bool,
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = vec![];
    for (d_state, head_dim, n_heads, n_groups, n_tokens, n_seqs, n_states, granular) in [
        // Mamba 1: heads of one element.
        (1, 1, 1, 1, 1, 1, 1, true),
        (16, 1, 3, 1, 1, 1, 1, true),
        (16, 1, 64, 1, 5, 3, 1, true),
        (16, 1, 1030, 1, 2, 1, 1, true),
        (15, 1, 7, 1, 4, 2, 1, true),
        (33, 1, 8, 2, 3, 2, 1, true),
        (16, 1, 12, 1, 6, 2, 3, true),
        (16, 4, 6, 3, 3, 2, 1, true),
        // Mamba 2.
        (1, 2, 2, 1, 2, 1, 1, false),
        (16, 4, 2, 1, 1, 1, 1, false),
        (17, 5, 3, 1, 4, 2, 1, false),
        (32, 64, 4, 2, 1, 2, 1, false),
        (64, 16, 8, 8, 9, 1, 1, false),
        (96, 32, 4, 2, 8, 2, 3, false),
        (128, 64, 4, 2, 3, 2, 1, false),
        (128, 64, 2, 1, 33, 1, 1, false),
        (256, 16, 4, 2, 4, 1, 1, false),
        // More states than tokens.
        (16, 4, 2, 1, 2, 2, 4, false),
        (16, 4, 4, 4, 4, 3, 4, false),
        (16, 4, 4, 2, 1, 1, 2, false),
    ] {
        let size = Size { d_state, head_dim, n_heads, n_groups, n_tokens, n_seqs, n_states, granular };
        let form = if granular { "a per element" } else { "a per head" };
        let name = format!(
            "{form}, {n_heads} heads of {head_dim} × {d_state} in {n_groups} groups, {n_seqs} × {n_tokens} tokens, \
             {n_states} states"
        );
        cases.push(Case::new(name, |g, ints| build(g, ints, size, (0..n_seqs as i32).rev().collect())));
    }
    let size = Size {
        d_state: 16,
        head_dim: 4,
        n_heads: 2,
        n_groups: 1,
        n_tokens: 3,
        n_seqs: 4,
        n_states: 1,
        granular: false,
    };
    for ids in [vec![2, 2, 0, 2], vec![3, -1, 4, i32::MIN], vec![i32::MAX, 0, 1, 2]] {
        cases.push(Case::new(format!("states {ids:?} of four"), |g, ints| build(g, ints, size, ids)));
    }
    for (lens, ids) in
        [(&[3, 1, 0, 5][..], [2, -1, 0, 9]), (&[1, 1, 1, 1], [3, 2, 1, 0]), (&[9, 0, 0, 0], [1, 1, 1, 1])]
    {
        let starts: Vec<i32> = (0..=lens.len()).map(|i| lens[..i].iter().sum()).collect();
        cases.push(Case::new(format!("{lens:?} tokens by query starts"), |g, ints| {
            ragged(g, ints, Size { n_heads: 6, n_tokens: 10, ..size }, ids.to_vec(), starts)
        }));
    }
    for wild in [[0, 4, 0, 4, 4], [-3, 2, 100, 5, 6], [i32::MIN, -1, 0, -1, i32::MAX]] {
        cases.push(Case::new(format!("query starts {wild:?}"), |g, ints| {
            ragged(g, ints, Size { n_tokens: 7, d_state: 40, ..size }, vec![0, 1, 2, 3], wild.to_vec())
        }));
    }
    for granular in [true, false] {
        cases.push(Case::new(format!("x, b and c in one tensor, a per element {granular}"), |g, ints| {
            let xbc = g.input("xbc", DType::F32, &[8 * 6 + 16 * 2 + 16 * 2, 5, 3]);
            let part = |g: &mut Graph, start: u64, n: u64, heads: u64| {
                let part = g.slice(xbc, 0, start, n * heads);
                g.split_heads(part, heads)
            };
            let (x, b, c) = (part(g, 0, 8, 6), part(g, 48, 16, 2), part(g, 80, 16, 2));
            let states = g.input("states", DType::F32, &[16, 8, 6, 7]);
            let dts = g.input("dts", DType::F32, &[10, 5, 3]);
            let dt = g.slice(dts, 0, 3, 6);
            let a = decay(g, if granular { 16 } else { 1 }, 6);
            let ids = g.input("ids", DType::I32, &[3]);
            ints.push((ids, vec![6, 0, 3]));
            g.ssm_scan(states, x, dt, a, b, c, ids, 1);
        }));
    }
    cases
}

fn build(g: &mut Graph, ints: &mut Vec<(Tensor, Vec<i32>)>, size: Size, which: Vec<i32>) {
    let Size { d_state, head_dim, n_heads, n_groups, n_tokens, n_seqs, .. } = size;
    let states = g.input("states", DType::F32, &[d_state, head_dim, n_heads, n_seqs]);
    let x = g.input("x", DType::F32, &[head_dim, n_heads, n_tokens, n_seqs]);
    let dt = g.input("dt", DType::F32, &[n_heads, n_tokens, n_seqs]);
    let dt = g.scale(dt, 4.0);
    let a = decay(g, if size.granular { d_state } else { 1 }, n_heads);
    let [b, c] = ["b", "c"].map(|name| g.input(name, DType::F32, &[d_state, n_groups, n_tokens, n_seqs]));
    let ids = g.input("ids", DType::I32, &[n_seqs]);
    ints.push((ids, which));
    g.ssm_scan(states, x, dt, a, b, c, ids, size.n_states);
}

/// Sequences of different lengths: `n_tokens` in all, and four states.
fn ragged(g: &mut Graph, ints: &mut Vec<(Tensor, Vec<i32>)>, size: Size, which: Vec<i32>, from: Vec<i32>) {
    let Size { d_state, head_dim, n_heads, n_groups, n_tokens, n_seqs, .. } = size;
    let states = g.input("states", DType::F32, &[d_state, head_dim, n_heads, 4]);
    let x = g.input("x", DType::F32, &[head_dim, n_heads, n_tokens]);
    let dt = g.input("dt", DType::F32, &[n_heads, n_tokens]);
    let a = decay(g, 1, n_heads);
    let [b, c] = ["b", "c"].map(|name| g.input(name, DType::F32, &[d_state, n_groups, n_tokens]));
    let ids = g.input("ids", DType::I32, &[n_seqs]);
    let starts = g.input("starts", DType::I32, &[n_seqs + 1]);
    ints.extend([(ids, which), (starts, from)]);
    g.ssm_scan_ragged(states, x, dt, a, b, c, ids, starts);
}

/// Numbers below 0, as in models: states fade.
fn decay(g: &mut Graph, n: u64, n_heads: u64) -> Tensor {
    let a = g.input("a", DType::F32, &[n, n_heads]);
    g.scale_bias(a, 0.4, -0.5)
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::{check, floats, ints};
    use super::*;

    fn ramp(n: usize, a: f32, b: f32) -> super::super::super::value::Data {
        floats(&(0..n).map(|i| (i as f32 * a + b).sin()).collect::<Vec<_>>())
    }

    /// Numbers that ggml's CPU backend gave: 2 elements of state, heads of 1, 2 heads, 2 tokens of 1 sequence.
    fn check_oracle(a_len: u64, n_states: u32, expected: &[f32]) {
        let build = |g: &mut Graph| {
            let states = g.input("states", DType::F32, &[2, 1, 2, 2]);
            let x = g.input("x", DType::F32, &[1, 2, 2, 1]);
            let dt = g.input("dt", DType::F32, &[2, 2, 1]);
            let a = g.input("a", DType::F32, &[a_len, 2]);
            let [b, c] = ["b", "c"].map(|name| g.input(name, DType::F32, &[2, 1, 2, 1]));
            let ids = g.input("ids", DType::I32, &[1]);
            g.ssm_scan(states, x, dt, a, b, c, ids, n_states)
        };
        let inputs = [
            ("states", ramp(8, 1.7, 0.6)),
            ("x", ramp(4, 0.7, 0.1)),
            ("dt", ramp(4, 0.9, 0.2)),
            ("a", ramp(2 * a_len as usize, 1.1, 3.3)),
            ("b", ramp(4, 1.3, 0.4)),
            ("c", ramp(4, 0.5, 0.5)),
            ("ids", ints(&[1])),
        ];
        check(build, &inputs, expected);
    }

    #[test]
    fn a_number_per_element_is_ggmls() {
        check_oracle(
            2,
            1,
            &[0.5869513, 0.625843, -0.12367854, 0.42135134, 0.85199606, -1.0706512, 0.056838043, 0.40103015],
        );
    }

    #[test]
    fn a_number_per_head_and_two_states_are_ggmls() {
        check_oracle(
            1,
            2,
            &[
                0.69800264,
                0.74216646,
                0.08209032,
                -0.082122535,
                0.85199606,
                -0.84435683,
                0.11283571,
                -0.21409452,
                0.8234836,
                0.36032566,
                0.042085994,
                0.8580086,
            ],
        );
    }
}
