//! S_ij = w_j S_ij + vᵢ k_j + (Σₗ S_il aₗ) b_j, then yᵢ = Σ_j S_ij r_j: for every head, token after token.
//! RWKV 7 (arXiv:2503.14456, §4); the layout is ggml's, element j of row i of a state is S_ij.
//!
//! Result: F32 [S·H, n_tokens + S·n_seqs]: outputs, then the states after the last tokens. r, w, k, v, a, b are F32 [S,
//! H, n_tokens], state is [S·S·H, n_seqs]; each sequence has n_tokens / n_seqs tokens, one sequence after the other. With
//! ids of states and query starts, sequences have different lengths, and state is [S·S·H, n_slots].

use super::recurrence::{self, SIZES};
use super::{Inferred, Rules, case::Case, check, value::Value};
use crate::graph::Graph;
use crate::tensor::{Tensor, TensorDef};
use llmrt_abi::{DType, Op};

impl Graph {
    /// RWKV 7: `r`, `w`, `k`, `v`, `a` and `b` [S, H, n_tokens], `state` [S·S·H, n_seqs] give
    /// [S·H, n_tokens + S·n_seqs], the outputs and then the states.
    #[allow(clippy::too_many_arguments)]
    pub fn rwkv_wkv7(
        &mut self,
        r: Tensor,
        w: Tensor,
        k: Tensor,
        v: Tensor,
        a: Tensor,
        b: Tensor,
        state: Tensor,
    ) -> Tensor {
        self.push(Op::RwkvWkv7, &[r, w, k, v, a, b, state].map(Some), &[])
    }

    /// The same for sequences of different lengths: `states` [S·S·H, n_slots], `ids` [n_seqs], `query_starts` [n_seqs + 1].
    #[allow(clippy::too_many_arguments)]
    pub fn rwkv_wkv7_ragged(
        &mut self,
        r: Tensor,
        w: Tensor,
        k: Tensor,
        v: Tensor,
        a: Tensor,
        b: Tensor,
        states: Tensor,
        ids: Tensor,
        query_starts: Tensor,
    ) -> Tensor {
        self.push(Op::RwkvWkv7, &[r, w, k, v, a, b, states, ids, query_starts].map(Some), &[])
    }
}

pub(super) const RULES: Rules = Rules { infer, reference, decompose: None, cases };

fn infer(src: &[Option<&TensorDef>], _params: &[u8]) -> Inferred {
    recurrence::infer(src, &["r", "w", "k", "v", "a", "b"])
}

fn reference(src: &[Option<&Value>], _params: &[u8]) -> Value {
    let [r, w, k, v, a, b] = std::array::from_fn(|i| check::arg(src, i).floats());
    recurrence::scan(src, 6, |at, state, y| {
        for (i, row) in state.chunks_exact_mut(at.s).enumerate() {
            let removed: f64 = (0..at.s).map(|j| a[at.row + j] as f64 * row[j] as f64).sum();
            let mut sum = 0.0;
            for (j, old) in row.iter_mut().enumerate() {
                let kv = v[at.row + i] * k[at.row + j];
                *old = *old * w[at.row + j] + kv + removed as f32 * b[at.row + j];
                sum += *old as f64 * r[at.row + j] as f64;
            }
            y[i] = sum as f32;
        }
    })
}

fn cases() -> Vec<Case> {
    let of_size = |&[s, h, n_tokens, n_seqs]: &[u64; 4]| {
        Case::new(format!("{n_seqs} × {n_tokens} tokens, {h} heads of {s}"), |g, _| {
            let dims = [s, h, n_tokens * n_seqs];
            let [r, w, k, v, a, b] =
                ["r", "w", "k", "v", "a", "b"].map(|name| g.input(name, DType::F32, &dims));
            // As in models, a and b are short, or states would grow without bound.
            let [a, b] = [a, b].map(|t| g.scale(t, (s as f32).sqrt().recip()));
            let state = g.input("state", DType::F32, &[s * s * h, n_seqs]);
            g.rwkv_wkv7(r, w, k, v, a, b, state);
        })
    };
    let mut cases: Vec<Case> = SIZES.iter().map(of_size).collect();
    cases.push(Case::new("operands that are parts of a fused projection", |g, _| {
        let all = g.input("all", DType::F32, &[6 * 32, 2, 4]);
        let [r, w, k, v, a, b] = [0, 32, 64, 96, 128, 160].map(|start| g.slice(all, 0, start, 32));
        let states = g.input("states", DType::F32, &[32 * 32 * 2, 5]);
        let state = g.slice(states, 1, 1, 2);
        g.rwkv_wkv7(r, w, k, v, a, b, state);
    }));
    cases.extend(recurrence::ragged_cases(|g, dims, [state, ids, starts]| {
        let [r, w, k, v, a, b] = ["r", "w", "k", "v", "a", "b"].map(|name| g.input(name, DType::F32, &dims));
        let [a, b] = [a, b].map(|t| g.scale(t, (dims[0] as f32).sqrt().recip()));
        g.rwkv_wkv7_ragged(r, w, k, v, a, b, state, ids, starts);
    }));
    cases
}

#[cfg(test)]
mod tests {
    use super::super::tests::{compute, sines};
    use super::*;

    /// Numbers that ggml's CPU backend gave: each 600th from the sixth.
    #[test]
    fn two_tokens_of_a_head_are_ggmls() {
        let build = |g: &mut Graph| {
            let [r, w, k, v, a, b] =
                ["r", "w", "k", "v", "a", "b"].map(|name| g.input(name, DType::F32, &[64, 1, 2]));
            let state = g.input("state", DType::F32, &[4096, 1]);
            g.rwkv_wkv7(r, w, k, v, a, b, state)
        };
        let inputs = [
            ("r", sines(128, 1.0, 0.7, 0.1)),
            ("w", sines(128, 1.0, 0.9, 0.2)),
            ("k", sines(128, 1.0, 1.1, 0.3)),
            ("v", sines(128, 1.0, 1.3, 0.4)),
            ("a", sines(128, 0.125, 0.5, 0.5)),
            ("b", sines(128, 1.0, 0.3, 0.7)),
            ("state", sines(4096, 1.0, 1.7, 0.6)),
        ];
        let expected = [
            -0.032589823,
            -0.32377276,
            -0.47076187,
            0.41261435,
            0.25627863,
            0.1181687,
            -1.0837041,
            0.74837995,
        ];
        let y = compute(build, &inputs);
        for (found, expected) in y.iter().skip(5).step_by(600).zip(expected) {
            assert!((found - expected).abs() < 1e-4, "{found}, expected {expected}");
        }
    }
}
