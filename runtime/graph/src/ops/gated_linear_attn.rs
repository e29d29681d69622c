//! S_ij = gᵢ S_ij + kᵢ v_j, then y_j = scale · Σᵢ qᵢ S_ij: for every head, token after token. Gated linear attention
//! (arXiv:2312.06635); the layout is ggml's, element j of row i of a state is S_ij.
//!
//! Result: F32 [S·H, n_tokens + S·n_seqs]: outputs, then the states after the last tokens. k, v, q, g are F32 [S, H,
//! n_tokens], state is [S·S·H, n_seqs]; each sequence has n_tokens / n_seqs tokens, one sequence after the other. With ids
//! of states and query starts, sequences have different lengths, and state is [S·S·H, n_slots].

use super::recurrence::{self, SIZES};
use super::{Inferred, Rules, case::Case, check, value::Value};
use crate::graph::Graph;
use crate::tensor::{Tensor, TensorDef};
use llmrt_abi::{DType, Op, op::GatedLinearAttnParams};

impl Graph {
    /// Gated linear attention: `k`, `v`, `q` and the gates `g` [S, H, n_tokens], `state` [S·S·H, n_seqs] give
    /// [S·H, n_tokens + S·n_seqs], the outputs and then the states.
    pub fn gated_linear_attn(
        &mut self,
        k: Tensor,
        v: Tensor,
        q: Tensor,
        g: Tensor,
        state: Tensor,
        scale: f32,
    ) -> Tensor {
        let params = GatedLinearAttnParams { scale }.to_bytes();
        self.push(Op::GatedLinearAttn, &[k, v, q, g, state].map(Some), &params)
    }

    /// The same for sequences of different lengths: `states` [S·S·H, n_slots], `ids` [n_seqs], `query_starts` [n_seqs + 1].
    #[allow(clippy::too_many_arguments)]
    pub fn gated_linear_attn_ragged(
        &mut self,
        k: Tensor,
        v: Tensor,
        q: Tensor,
        g: Tensor,
        states: Tensor,
        ids: Tensor,
        query_starts: Tensor,
        scale: f32,
    ) -> Tensor {
        let params = GatedLinearAttnParams { scale }.to_bytes();
        self.push(Op::GatedLinearAttn, &[k, v, q, g, states, ids, query_starts].map(Some), &params)
    }
}

pub(super) const RULES: Rules = Rules { infer, reference, decompose: None, cases };

fn infer(src: &[Option<&TensorDef>], params: &[u8]) -> Inferred {
    check::params(GatedLinearAttnParams::from_bytes(params))?;
    recurrence::infer(src, &["k", "v", "q", "g"])
}

fn reference(src: &[Option<&Value>], params: &[u8]) -> Value {
    let scale = GatedLinearAttnParams::from_bytes(params).unwrap_or_default().scale;
    let [k, v, q, g] = std::array::from_fn(|i| check::arg(src, i).floats());
    recurrence::scan(src, 4, |at, state, y| {
        for j in 0..at.s {
            let mut sum = 0.0;
            for i in 0..at.s {
                let old = &mut state[i * at.s + j];
                *old = *old * g[at.row + i] + k[at.row + i] * v[at.row + j];
                sum += *old as f64 * q[at.row + i] as f64;
            }
            y[j] = sum as f32 * scale;
        }
    })
}

fn cases() -> Vec<Case> {
    let of_size = |&[s, h, n_tokens, n_seqs]: &[u64; 4]| {
        Case::new(format!("{n_seqs} × {n_tokens} tokens, {h} heads of {s}"), |g, _| {
            let dims = [s, h, n_tokens * n_seqs];
            let [k, v, q, gate] = ["k", "v", "q", "g"].map(|name| g.input(name, DType::F32, &dims));
            let state = g.input("state", DType::F32, &[s * s * h, n_seqs]);
            g.gated_linear_attn(k, v, q, gate, state, (s as f32).sqrt().recip());
        })
    };
    let mut cases: Vec<Case> = SIZES.iter().map(of_size).collect();
    cases.push(Case::new("operands that are parts of a fused projection, scale -3", |g, _| {
        let all = g.input("all", DType::F32, &[4 * 32, 2, 6]);
        let [k, v, q, gate] = [0, 32, 64, 96].map(|start| g.slice(all, 0, start, 32));
        let states = g.input("states", DType::F32, &[32 * 32 * 2, 5]);
        let state = g.slice(states, 1, 1, 3);
        g.gated_linear_attn(k, v, q, gate, state, -3.0);
    }));
    cases.extend(recurrence::ragged_cases(|g, dims, [state, ids, starts]| {
        let [k, v, q, gate] = ["k", "v", "q", "g"].map(|name| g.input(name, DType::F32, &dims));
        g.gated_linear_attn_ragged(k, v, q, gate, state, ids, starts, 0.5);
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
            let [k, v, q, gate] = ["k", "v", "q", "g"].map(|name| g.input(name, DType::F32, &[2, 1, 4]));
            let state = g.input("state", DType::F32, &[4, 2]);
            g.gated_linear_attn(k, v, q, gate, state, 0.5)
        };
        let inputs = [
            ("k", sines(8, 1.0, 0.7, 0.1)),
            ("v", sines(8, 1.0, 0.9, 0.2)),
            ("q", sines(8, 1.0, 1.1, 0.3)),
            ("g", sines(8, 1.0, 0.5, 0.5)),
            ("state", sines(8, 1.0, 1.7, 0.6)),
        ];
        check(
            build,
            &inputs,
            &[
                -0.20062926,
                0.15265608,
                0.2949231,
                0.12648769,
                -0.22645786,
                -0.07648781,
                0.37746045,
                -0.31630066,
                1.1968297,
                0.684014,
                0.28568837,
                0.35340267,
                0.44102594,
                -0.18015641,
                0.50518984,
                -0.5340751,
            ],
        );
    }
}
