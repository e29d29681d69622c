//! Cases of `gated_delta_net`, and numbers of ggml's.

use super::super::case::Case;
use crate::graph::Graph;
use crate::tensor::Tensor;
use llmrt_abi::DType;

pub(super) fn cases() -> Vec<Case> {
    let mut cases = vec![];
    for (s, h, repeat, n_tokens, n_seqs, n_states) in [
        (1, 1, 1, 1, 1, 1),
        (2, 1, 2, 3, 1, 1),
        (15, 2, 1, 2, 2, 1),
        (16, 4, 1, 1, 1, 1),
        (17, 3, 2, 4, 1, 1),
        (16, 4, 1, 1, 2, 1),
        (32, 4, 1, 4, 1, 1),
        (32, 2, 3, 4, 2, 1),
        (64, 2, 1, 4, 2, 1),
        (64, 1, 2, 1, 4, 1),
        (64, 2, 1, 33, 1, 1),
        (128, 2, 1, 1, 1, 1),
        (128, 1, 2, 3, 1, 1),
        (16, 2, 1, 2, 1, 2),
        (32, 4, 1, 4, 1, 4),
        (32, 2, 2, 4, 2, 4),
        (32, 2, 1, 8, 1, 3),
        (16, 2, 1, 2, 2, 4),
    ] {
        for n_gates in [1, s] {
            let form = if n_gates == 1 { "one gate" } else { "a gate per row" };
            let name = format!(
                "{form}, {s} elements, {h} × {repeat} heads, {n_seqs} × {n_tokens} tokens, {n_states} states"
            );
            if s == 1 && cases.iter().any(|c: &Case| c.name.ends_with(&name[8..])) {
                continue; // both forms are the same
            }
            cases.push(Case::new(name, |g, _| {
                let [q, k] = ["q", "k"].map(|name| g.input(name, DType::F32, &[s, h, n_tokens, n_seqs]));
                let v = g.input("v", DType::F32, &[s, h * repeat, n_tokens, n_seqs]);
                finish(g, [q, k, v], n_gates, n_states);
            }));
        }
    }
    for n_gates in [1, 24] {
        cases.push(Case::new(format!("tokens and heads exchanged, {n_gates} gates"), |g, _| {
            let [q, k, v] = [("q", 2), ("k", 2), ("v", 4)].map(|(name, h)| {
                let t = g.input(name, DType::F32, &[24, 5, h, 2]);
                g.permute(t, [0, 2, 1, 3])
            });
            finish(g, [q, k, v], n_gates, 1);
        }));
        cases.push(Case::new(format!("parts of a fused projection, {n_gates} gates"), |g, _| {
            let qkv = g.input("qkv", DType::F32, &[24 * 8, 3, 2]);
            let [q, k, v] = [(0, 2), (2, 2), (4, 4)].map(|(first, h)| {
                let part = g.slice(qkv, 0, first * 24, h * 24);
                g.split_heads(part, h)
            });
            finish(g, [q, k, v], n_gates, 2);
        }));
        cases.push(Case::new(format!("sequences that share q and k, {n_gates} gates"), |g, _| {
            let [q, k] = ["q", "k"].map(|name| g.input(name, DType::F32, &[24, 2, 3, 2]));
            let v = g.input("v", DType::F32, &[24, 2, 3, 4]);
            finish(g, [q, k, v], n_gates, 1);
        }));
    }
    for (lens, ids) in
        [(&[3, 1, 0, 5][..], [2, -1, 0, 9]), (&[1, 1, 1, 1], [3, 2, 1, 0]), (&[9, 0, 0, 0], [1, 1, 1, 1])]
    {
        let starts: Vec<i32> = (0..=lens.len()).map(|i| lens[..i].iter().sum()).collect();
        for n_gates in [1, 24] {
            let name = format!("{lens:?} tokens by query starts, {n_gates} gates");
            let (ids, starts) = (ids.to_vec(), starts.clone());
            cases.push(Case::new(name, |g, ints| ragged(g, ints, [24, n_gates, 10], ids, starts)));
        }
    }
    for wild in [[0, 4, 0, 4, 4], [-3, 2, 100, 5, 6], [i32::MIN, -1, 0, -1, i32::MAX]] {
        cases.push(Case::new(format!("query starts {wild:?}"), |g, ints| {
            ragged(g, ints, [17, 1, 7], vec![0, 1, 2, 3], wild.to_vec())
        }));
    }
    cases
}

/// Sequences of different lengths: elements, gates and tokens; two heads of v on one of q and k, four states.
fn ragged(
    g: &mut Graph,
    ints: &mut Vec<(Tensor, Vec<i32>)>,
    [s, n_gates, n_tokens]: [u64; 3],
    which: Vec<i32>,
    from: Vec<i32>,
) {
    let [q, k] = ["q", "k"].map(|name| g.input(name, DType::F32, &[s, 1, n_tokens]));
    let v = g.input("v", DType::F32, &[s, 2, n_tokens]);
    let [k, gate, beta] = as_in_models(g, k, v, n_gates);
    let states = g.input("states", DType::F32, &[s, s, 2, 4]);
    let ids = g.input("ids", DType::I32, &[which.len() as u64]);
    let starts = g.input("starts", DType::I32, &[from.len() as u64]);
    ints.extend([(ids, which), (starts, from)]);
    g.gated_delta_net_ragged(q, k, v, gate, beta, states, ids, starts);
}

fn finish(g: &mut Graph, [q, k, v]: [Tensor; 3], n_gates: u64, n_states: u32) {
    let [s, h, _, n_seqs] = g.ne(v);
    let [k, gate, beta] = as_in_models(g, k, v, n_gates);
    let state = g.input("state", DType::F32, &[s, s, h, n_seqs]);
    g.gated_delta_net(q, k, v, gate, beta, state, n_states);
}

/// k, gates and beta as in models: keys have length 1, gates are at most 1, beta is between 0 and 1.
fn as_in_models(g: &mut Graph, k: Tensor, v: Tensor, n_gates: u64) -> [Tensor; 3] {
    let [s, h, n_tokens, n_seqs] = g.ne(v);
    let k = g.rms_norm(k, None, 1e-6);
    let k = g.scale(k, (s as f32).sqrt().recip());
    let gate = g.input("g", DType::F32, &[n_gates, h, n_tokens, n_seqs]);
    let gate = g.scale_bias(gate, 0.5, -0.5);
    let beta = g.input("beta", DType::F32, &[1, h, n_tokens, n_seqs]);
    [k, gate, g.sigmoid(beta)]
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::{check, floats};
    use super::*;

    fn ramp(n: u64, a: f32, b: f32) -> super::super::super::value::Data {
        floats(&(0..n).map(|i| (i as f32 * a + b).sin()).collect::<Vec<_>>())
    }

    /// Numbers that ggml's CPU backend gave: 2 elements, 2 heads of v on 1 of q and k, 2 tokens of 1 sequence.
    fn check_oracle(n_gates: u64, n_states: u32, expected: &[f32]) {
        let build = |g: &mut Graph| {
            let [q, k] = ["q", "k"].map(|name| g.input(name, DType::F32, &[2, 1, 2, 1]));
            let v = g.input("v", DType::F32, &[2, 2, 2, 1]);
            let gate = g.input("g", DType::F32, &[n_gates, 2, 2, 1]);
            let beta = g.input("beta", DType::F32, &[1, 2, 2, 1]);
            let state = g.input("state", DType::F32, &[2, 2, 2, 1]);
            g.gated_delta_net(q, k, v, gate, beta, state, n_states)
        };
        let inputs = [
            ("q", ramp(4, 0.7, 0.1)),
            ("k", ramp(4, 0.9, 0.2)),
            ("v", ramp(8, 1.1, 0.3)),
            ("g", ramp(4 * n_gates, 1.3, 0.4)),
            ("beta", ramp(4, 0.5, 0.5)),
            ("state", ramp(8, 1.7, 0.6)),
        ];
        check(build, &inputs, expected);
    }

    #[test]
    fn one_gate_for_a_head_is_ggmls() {
        check_oracle(
            1,
            1,
            &[
                0.42701724,
                -0.05951603,
                0.35264182,
                -0.18238339,
                -0.4488741,
                -0.3545648,
                0.5267074,
                0.6359457,
                -0.93930507,
                0.3737162,
                -0.6128505,
                0.13591272,
                0.6784835,
                0.08422169,
                0.55928576,
                0.422362,
            ],
        );
    }

    #[test]
    fn a_gate_per_row_and_two_states_are_ggmls() {
        check_oracle(
            2,
            2,
            &[
                0.70722467,
                -0.26644257,
                0.24727267,
                -0.16946617,
                0.1187123,
                -0.63803756,
                0.70672584,
                0.45124012,
                -1.3471771,
                1.8697507,
                -0.34699073,
                -0.68794346,
                1.104085,
                -0.12598431,
                0.11079545,
                0.6526089,
                0.6752202,
                1.3002709,
                -0.8761212,
                -0.40334296,
                1.0815771,
                0.33695793,
                -1.1621181,
                -0.17235948,
            ],
        );
    }
}
