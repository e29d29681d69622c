//! Gated delta networks (arXiv 2412.06464): linear attention whose state fades, and keeps for each key a value that the next
//! one replaces.

use super::part_of_heads;
use super::recurrent::{Sequences, conv_state, convolution, outputs_and_states, sequences};
use crate::builder::Builder;
use crate::cache::StateTensor;
use crate::error::Result;
use llmrt_graph::{Activation, Role, Tensor};

/// Gated delta network of `h`, mixed, and `x`: [n_embd, n], in the last layer the outputs alone. The result's gate is
/// `activation` (Qwen3-Next).
pub(crate) fn delta_net_mixer(
    b: &mut Builder<'_>,
    h: Tensor,
    x: Tensor,
    activation: Activation,
) -> Result<[Tensor; 2]> {
    let [qkv, gate] = qkv_and_gate(b, h)?; // [n_conv or n_inner, n_tokens]
    let [decay, beta] = decay_and_beta(b, h)?; // [1, n_head, n_tokens]
    let ssm = &b.cfg.ssm;
    let [conv, state] =
        b.states([conv_state("conv_state", ssm.n_taps, ssm.n_conv()), delta_state(ssm.scan_row())]);
    let of = sequences(b);

    let qkv = convolution(b, "ssm_conv1d", &[ssm.n_taps, ssm.n_conv()], conv, &of, qkv)?;
    let qkv = b.g.silu(qkv);
    let qkv = b.name(qkv, "ssm_conv");
    let n_qk = ssm.n_group * ssm.n_state;
    let parts = [(0, n_qk, ssm.n_group), (n_qk, n_qk, ssm.n_group), (2 * n_qk, ssm.n_inner, ssm.n_head)];
    let [q, k, v] = parts.map(|(start, n, n_head)| {
        let part = b.g.slice(qkv, 0, start, n);
        b.g.split_heads(part, n_head)
    });
    let [q, k] = [q, k].map(|t| share_by_neighbours(b, t));

    let y = delta_rule(b, state, &of, [q, k, v], decay, beta); // [n_inner, n_tokens]
    let [y, gate, x] = b.keep_outputs([y, gate, x]);
    let y = gated_norm(b, y, activation, gate)?;
    Ok([b.linear("ssm_out", b.cfg.n_embd, y)?, x])
}

/// Q, K and V, and the gate of the result.
fn qkv_and_gate(b: &mut Builder<'_>, h: Tensor) -> Result<[Tensor; 2]> {
    let ssm = &b.cfg.ssm;
    if b.has("attn_qkv.weight") {
        return Ok([b.linear("attn_qkv", ssm.n_conv(), h)?, b.linear("attn_gate", ssm.n_inner, h)?]);
    }
    // The first files have of each head of K: Q, K, its heads of V, and their gates.
    let all = b.linear("ssm_in", ssm.n_conv() + ssm.n_inner, h)?;
    let groups = b.g.split_heads(all, ssm.n_group);
    let (n_k, n_v) = (ssm.n_state, ssm.n_inner / ssm.n_group);
    let parts = [(0, n_k), (n_k, n_k), (2 * n_k, n_v), (2 * n_k + n_v, n_v)];
    let [q, k, v, gate] = parts.map(|(start, n)| part_of_heads(b, groups, start, n));
    let qk = b.g.concat(q, k, 0);
    Ok([b.g.concat(qk, v, 0), gate])
}

/// The logs of the factors that states fade by, and how much of an old value is replaced: [1, n_head, n_tokens].
fn decay_and_beta(b: &mut Builder<'_>, h: Tensor) -> Result<[Tensor; 2]> {
    let (n_head, n_tokens) = (b.cfg.ssm.n_head, b.g.ne(h)[1]);
    let [beta, alpha] = match shares_by_neighbours(b) {
        true => {
            // Of each head of K the betas of its heads of V, then their alphas.
            let (n_group, each) = (b.cfg.ssm.n_group, n_head / b.cfg.ssm.n_group);
            let both = b.linear("ssm_ba", 2 * n_head, h)?;
            let groups = b.g.split_heads(both, n_group);
            [0, each].map(|start| part_of_heads(b, groups, start, each))
        }
        false => [b.linear("ssm_beta", n_head, h)?, b.linear("ssm_alpha", n_head, h)?],
    };
    let bias = b.weight("ssm_dt.bias", &[n_head], Role::Bias)?;
    let a = b.weight("ssm_a", &[n_head], Role::Other)?; // below 0
    let alpha = b.g.add(alpha, bias);
    let alpha = b.g.softplus(alpha);
    let decay = b.g.mul(alpha, a);
    let beta = b.g.sigmoid(beta);
    Ok([decay, beta].map(|t| b.g.reshape(t, &[1, n_head, n_tokens])))
}

/// Whether heads of V that share a head of K stand side by side, as in Qwen3-Next, whose files have one matrix for beta
/// and alpha; else head h of V is with head h mod n of the n heads of K, as the op has it.
fn shares_by_neighbours(b: &Builder<'_>) -> bool {
    b.has("ssm_ba.weight")
}

fn share_by_neighbours(b: &mut Builder<'_>, heads: Tensor) -> Tensor {
    match b.cfg.ssm.n_head / b.cfg.ssm.n_group {
        each if each > 1 && shares_by_neighbours(b) => b.g.repeat_interleave(heads, 1, each as u32),
        _ => heads,
    }
}

/// The state of the rule: a matrix for each head.
pub(super) fn delta_state(row: u64) -> StateTensor {
    StateTensor { name: "delta_state", row }
}

/// Results of the heads [n_inner, n_tokens] of Q and K [n_state, n_group, n_tokens], V [n_state, n_head, n_tokens], the
/// logs of the factors that states fade by, [1 or n_state, n_head, n_tokens], and beta [1, n_head, n_tokens].
pub(super) fn delta_rule(
    b: &mut Builder<'_>,
    state: Tensor,
    of: &Sequences,
    [q, k, v]: [Tensor; 3],
    decay: Tensor,
    beta: Tensor,
) -> Tensor {
    let [n_state, n_head, n_tokens, _] = b.g.ne(v);
    let [q, k] = [q, k].map(|heads| unit_length(b, heads));
    let states = b.g.reshape(state, &[n_state, n_state, n_head, b.batch.n_state_slots]);
    let both = b.g.gated_delta_net_ragged(q, k, v, decay, beta, states, of.reads, of.query_starts);
    let y = outputs_and_states(b, both, state, of, &[n_state * n_head, n_tokens]);
    b.name(y, "delta_rule")
}

/// Rows divided by the root of their sum of squares and eps.
fn unit_length(b: &mut Builder<'_>, heads: Tensor) -> Tensor {
    let n = b.g.ne(heads)[0] as f32;
    let eps = if b.cfg.ssm.unit_eps == 0.0 { b.cfg.norm_eps } else { b.cfg.ssm.unit_eps };
    let y = b.g.rms_norm(heads, None, eps / n);
    b.g.scale(y, n.sqrt().recip())
}

/// norm(y) of each head times activation(gate): [n_inner, n].
pub(super) fn gated_norm(
    b: &mut Builder<'_>,
    y: Tensor,
    activation: Activation,
    gate: Tensor,
) -> Result<Tensor> {
    let (n_head, [n_inner, n, ..]) = (b.cfg.ssm.n_head, b.g.ne(y));
    let heads = b.g.split_heads(y, n_head);
    let heads = b.norm("ssm_norm", heads)?;
    let y = b.g.reshape(heads, &[n_inner, n]);
    Ok(b.g.glu(activation, gate, Some(y)))
}
