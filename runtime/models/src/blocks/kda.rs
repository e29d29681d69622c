//! Kimi Delta Attention (arXiv 2510.26692): a gated delta network whose keys have a decay for each element, and
//! convolutions of their own for Q, K and V.

use super::delta_net::{delta_rule, delta_state, gated_norm};
use super::recurrent::{Sequences, conv_state, convolution, sequences};
use crate::builder::Builder;
use crate::config::DecayGate;
use crate::error::Result;
use llmrt_graph::{Activation, Role, Tensor};

/// Kimi Delta Attention of `h`, mixed, and `x`: [n_embd, n], in the last layer the outputs alone.
pub(crate) fn kda_mixer(b: &mut Builder<'_>, h: Tensor, x: Tensor) -> Result<[Tensor; 2]> {
    let (ssm, n_tokens) = (&b.cfg.ssm, b.g.ne(h)[1]);
    let decay = decay(b, h)?; // [n_state, n_head, n_tokens]
    let beta = b.matmul("ssm_beta", ssm.n_head, h)?;
    let beta = b.g.sigmoid(beta);
    let beta = b.g.reshape(beta, &[1, ssm.n_head, n_tokens]);

    let conv = |name| conv_state(name, ssm.n_taps, ssm.n_inner);
    let states = ["conv_q_state", "conv_k_state", "conv_v_state"].map(conv);
    let [conv_q, conv_k, conv_v, state] =
        b.states([states[0], states[1], states[2], delta_state(ssm.scan_row())]);
    let of = sequences(b);
    let q = heads(b, "q", conv_q, &of, h)?; // [n_state, n_head, n_tokens]
    let k = heads(b, "k", conv_k, &of, h)?;
    let v = heads(b, "v", conv_v, &of, h)?;

    let y = delta_rule(b, state, &of, [q, k, v], decay, beta); // [n_inner, n_tokens]
    let [y, h, x] = b.keep_outputs([y, h, x]); // [.., n]
    let gate = match b.has("ssm_g.weight") {
        true => b.matmul("ssm_g", ssm.n_inner, h)?,
        false => one_or_two(b, ["ssm_g_a", "ssm_g_b"], h)?,
    };
    let y = gated_norm(b, y, Activation::Sigmoid, gate)?;
    Ok([b.matmul("attn_output", b.cfg.n_embd, y)?, x])
}

/// Heads of Q, K or V: a product, a convolution, silu.
fn heads(b: &mut Builder<'_>, which: &str, state: Tensor, of: &Sequences, h: Tensor) -> Result<Tensor> {
    let ssm = &b.cfg.ssm;
    let y = b.matmul(&format!("attn_{which}"), ssm.n_inner, h)?;
    let name = format!("ssm_conv1d_{which}");
    let y = convolution(b, &name, &[ssm.n_taps, 1, ssm.n_inner], state, of, y)?;
    let y = b.g.silu(y);
    let y = b.name(y, &name);
    Ok(b.g.split_heads(y, ssm.n_head))
}

/// The logs of the factors that states fade by: [n_state, n_head, n_tokens].
fn decay(b: &mut Builder<'_>, h: Tensor) -> Result<Tensor> {
    let ssm = &b.cfg.ssm;
    let raw = one_or_two(b, ["ssm_f_a", "ssm_f_b"], h)?; // [n_inner, n_tokens]
    let bias = b.weight("ssm_dt.bias", &[ssm.n_inner], Role::Bias)?;
    let raw = b.g.add(raw, bias);
    let a = b.per_head("ssm_a", ssm.n_head)?;
    Ok(match ssm.decay {
        DecayGate::Softplus => {
            let raw = b.g.softplus(raw);
            let raw = b.g.split_heads(raw, ssm.n_head);
            b.g.mul(raw, a)
        }
        DecayGate::Sigmoid { bound, factor } => {
            let raw = b.g.split_heads(raw, ssm.n_head);
            let raw = b.g.mul(raw, a);
            let raw = b.g.scale(raw, factor);
            let raw = b.g.sigmoid(raw);
            b.g.scale(raw, bound)
        }
    })
}

/// A product [n_inner, n] with one matrix, or with two and few elements between them.
fn one_or_two(b: &mut Builder<'_>, [first, second]: [&str; 2], x: Tensor) -> Result<Tensor> {
    let (n_inner, n_state) = (b.cfg.ssm.n_inner, b.cfg.ssm.n_state);
    match b.has(&format!("{second}.weight")) {
        true => {
            let low = b.matmul(first, n_state, x)?;
            b.matmul(second, n_inner, low)
        }
        false => b.matmul(first, n_inner, x),
    }
}
