//! y_j = Σᵢ rᵢ (S_ij + uᵢ kᵢ v_j), then S_ij = wᵢ S_ij + kᵢ v_j: for every head, token after token; u is time_first, w the
//! token's time_decay. RWKV 6 (arXiv:2404.05892, §4); the layout is ggml's, element j of row i of a state is S_ij.
//!
//! Result: F32 [S·H, n_tokens + S·n_seqs]: outputs, then the states after the last tokens. k, v, r, time_decay are F32
//! [S, H, n_tokens], time_first is [S, H], state is [S·S·H, n_seqs]; each sequence has n_tokens / n_seqs tokens, one
//! sequence after the other. With ids of states and query starts, sequences have different lengths, and state is [S·S·H,
//! n_slots].

use super::recurrence::{self, SIZES};
use super::{Inferred, Rules, case::Case, check, value::Value};
use crate::graph::Graph;
use crate::tensor::{Tensor, TensorDef};
use llmrt_abi::{DType, Op};

impl Graph {
    /// RWKV 6: `k`, `v`, `r` and `time_decay` [S, H, n_tokens], `time_first` [S, H], `state` [S·S·H, n_seqs] give
    /// [S·H, n_tokens + S·n_seqs], the outputs and then the states.
    pub fn rwkv_wkv6(
        &mut self,
        k: Tensor,
        v: Tensor,
        r: Tensor,
        time_first: Tensor,
        time_decay: Tensor,
        state: Tensor,
    ) -> Tensor {
        let src = [k, v, r, time_first, time_decay, state].map(Some);
        self.push(Op::RwkvWkv6, &src, &[])
    }

    /// The same for sequences of different lengths: `states` [S·S·H, n_slots], `ids` [n_seqs], `query_starts` [n_seqs + 1].
    #[allow(clippy::too_many_arguments)]
    pub fn rwkv_wkv6_ragged(
        &mut self,
        k: Tensor,
        v: Tensor,
        r: Tensor,
        time_first: Tensor,
        time_decay: Tensor,
        states: Tensor,
        ids: Tensor,
        query_starts: Tensor,
    ) -> Tensor {
        let src = [k, v, r, time_first, time_decay, states, ids, query_starts].map(Some);
        self.push(Op::RwkvWkv6, &src, &[])
    }
}

pub(super) const RULES: Rules = Rules { infer, reference, decompose: None, cases };

fn infer(src: &[Option<&TensorDef>], _params: &[u8]) -> Inferred {
    recurrence::infer(src, &["k", "v", "r", "time_first", "time_decay"])
}

fn reference(src: &[Option<&Value>], _params: &[u8]) -> Value {
    let [k, v, r, first, decay] = std::array::from_fn(|i| check::arg(src, i).floats());
    recurrence::scan(src, 5, |at, state, y| {
        for j in 0..at.s {
            let mut sum = 0.0;
            for i in 0..at.s {
                let kv = k[at.row + i] * v[at.row + j];
                let old = &mut state[i * at.s + j];
                sum += (r[at.row + i] * (*old + first[at.head + i] * kv)) as f64;
                *old = *old * decay[at.row + i] + kv;
            }
            y[j] = sum as f32;
        }
    })
}

fn cases() -> Vec<Case> {
    let of_size = |&[s, h, n_tokens, n_seqs]: &[u64; 4]| {
        Case::new(format!("{n_seqs} × {n_tokens} tokens, {h} heads of {s}"), |g, _| {
            let dims = [s, h, n_tokens * n_seqs];
            let [k, v, r, decay] = ["k", "v", "r", "decay"].map(|name| g.input(name, DType::F32, &dims));
            let first = g.input("first", DType::F32, &dims[..2]);
            let state = g.input("state", DType::F32, &[s * s * h, n_seqs]);
            g.rwkv_wkv6(k, v, r, first, decay, state);
        })
    };
    let mut cases: Vec<Case> = SIZES.iter().map(of_size).collect();
    cases.push(Case::new("operands that are parts of a fused projection", |g, _| {
        let all = g.input("all", DType::F32, &[4 * 32, 2, 6]);
        let [k, v, r, decay] = [0, 32, 64, 96].map(|start| g.slice(all, 0, start, 32));
        let first = g.input("first", DType::F32, &[32, 2]);
        let states = g.input("states", DType::F32, &[32 * 32 * 2, 5]);
        let state = g.slice(states, 1, 1, 3);
        g.rwkv_wkv6(k, v, r, first, decay, state);
    }));
    cases.extend(recurrence::ragged_cases(|g, dims, [state, ids, starts]| {
        let [k, v, r, decay] = ["k", "v", "r", "decay"].map(|name| g.input(name, DType::F32, &dims));
        let first = g.input("first", DType::F32, &dims[..2]);
        g.rwkv_wkv6_ragged(k, v, r, first, decay, state, ids, starts);
    }));
    cases
}

#[cfg(test)]
mod tests {
    use super::super::tests::{check, sines};
    use super::*;

    /// Numbers that ggml's CPU backend gave.
    #[test]
    fn two_tokens_of_two_sequences_are_ggmls() {
        let build = |g: &mut Graph| {
            let [k, v, r, decay] = ["k", "v", "r", "decay"].map(|name| g.input(name, DType::F32, &[2, 1, 4]));
            let first = g.input("first", DType::F32, &[2, 1]);
            let state = g.input("state", DType::F32, &[4, 2]);
            g.rwkv_wkv6(k, v, r, first, decay, state)
        };
        let inputs = [
            ("k", sines(8, 1.0, 0.7, 0.1)),
            ("v", sines(8, 1.0, 0.9, 0.2)),
            ("r", sines(8, 1.0, 1.1, 0.3)),
            ("first", sines(2, 1.0, 1.3, 0.4)),
            ("decay", sines(8, 1.0, 0.5, 0.5)),
            ("state", sines(8, 1.0, 1.7, 0.6)),
        ];
        check(
            build,
            &inputs,
            &[
                -0.43737265,
                0.3126969,
                0.28139436,
                0.1600903,
                -0.5106398,
                -0.39897338,
                1.0815396,
                0.153821,
                1.1968297,
                0.6840141,
                0.2856884,
                0.35340267,
                0.44102588,
                -0.18015641,
                0.5051898,
                -0.5340751,
            ],
        );
    }
}
