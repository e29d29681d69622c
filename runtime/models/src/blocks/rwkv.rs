//! What RWKV's versions share: a token is mixed with the one before it, whose hidden state is a state of the sequence.

use super::ffn::{relu_squared, swiglu};
use super::recurrent::{Sequences, conv_state, convolved, outputs_and_states, sequences};
use crate::builder::Builder;
use crate::cache::StateTensor;
use crate::error::Result;
use llmrt_graph::{Role, Tensor};

/// What the heads of a layer take.
pub(crate) struct TimeMix {
    /// The heads' states: a matrix for each.
    pub(super) state: Tensor,
    pub(super) of: Sequences,
    /// Normed hidden states [n_embd, n_tokens].
    pub(super) x: Tensor,
    /// What the token before each has more.
    pub(super) shifted: Tensor,
}

/// x + out(heads(norm(x))), then x + channel_mix(norm(x)), or an FFN as other models have it (ARWKV, arXiv 2501.15570).
pub(crate) fn rwkv_layer(
    b: &mut Builder<'_>,
    x: Tensor,
    heads: impl FnOnce(&mut Builder<'_>, &TimeMix) -> Result<Tensor>,
) -> Result<Tensor> {
    let last_token = |b: &Builder<'_>, name| conv_state(name, 2, b.cfg.n_embd);
    let wkv = StateTensor { name: "wkv_state", row: b.cfg.rwkv.state_row() };
    let (shift_state, state, ffn_state) = match b.has("channel_mix_key.weight") {
        true => {
            let [shift, wkv, ffn] =
                b.states([last_token(b, "shift_state"), wkv, last_token(b, "ffn_shift_state")]);
            (shift, wkv, Some(ffn))
        }
        false => {
            let [shift, wkv] = b.states([last_token(b, "shift_state"), wkv]);
            (shift, wkv, None)
        }
    };

    let of = sequences(b);
    let h = b.norm("attn_norm", x)?; // [n_embd, n_tokens]
    let shifted = shift(b, shift_state, &of, h);
    let mix = TimeMix { state, of, x: h, shifted };
    let y = heads(b, &mix)?; // [n_embd, n_tokens]
    let Some(ffn_state) = ffn_state else {
        let [y, x] = b.keep_outputs([y, x]); // [n_embd, n]: in the last layer the outputs alone
        let y = b.linear("time_mix_output", b.cfg.n_embd, y)?;
        let x = b.add("ffn_inp", y, x);
        let h = b.norm("ffn_norm", x)?;
        let ffn = swiglu(b, h)?;
        return Ok(b.add("l_out", ffn, x));
    };
    let y = b.linear("time_mix_output", b.cfg.n_embd, y)?;
    let x = b.add("ffn_inp", y, x);
    let h = b.norm("attn_norm_2", x)?;
    let shifted = shift(b, ffn_state, &mix.of, h);
    let [h, shifted, x] = b.keep_outputs([h, shifted, x]); // [n_embd, n]: in the last layer the outputs alone
    let ffn = channel_mix(b, h, shifted)?;
    Ok(b.add("l_out", ffn, x))
}

/// What the token before has more than each token, zeros before the first: [n_embd, n_tokens].
fn shift(b: &mut Builder<'_>, state: Tensor, of: &Sequences, x: Tensor) -> Tensor {
    let taps = b.g.arange(1.0, -2.0, -2.0); // 1 for the token before, -1 for the token itself
    let kernel = b.g.repeat(taps, &[2, b.cfg.n_embd]);
    let y = convolved(b, kernel, state, of, x);
    b.name(y, "token_shift")
}

/// x + shifted · the weight of that name.
pub(super) fn lerp(b: &mut Builder<'_>, name: &str, x: Tensor, shifted: Tensor) -> Result<Tensor> {
    let weight = b.weight(&format!("{name}.weight"), &[b.cfg.n_embd], Role::Other)?;
    Ok(lerp_by(b, weight, x, shifted))
}

/// x + shifted · weight.
pub(super) fn lerp_by(b: &mut Builder<'_>, weight: Tensor, x: Tensor, shifted: Tensor) -> Tensor {
    let part = b.g.mul(shifted, weight);
    b.g.add(part, x)
}

/// The outputs of a recurrence [n_embd, n_tokens]; the states go to their slots.
pub(super) fn wkv_output(b: &mut Builder<'_>, both: Tensor, mix: &TimeMix) -> Tensor {
    let dims = [b.cfg.n_embd, b.g.ne(mix.x)[1]];
    let y = outputs_and_states(b, both, mix.state, &mix.of, &dims);
    b.name(y, "wkv")
}

/// Heads with zero mean and unit variance, times a weight, plus a bias: [n_embd, n_tokens].
pub(super) fn norm_of_heads(b: &mut Builder<'_>, y: Tensor) -> Result<Tensor> {
    const EPS: f32 = 64e-5;
    let [n_embd, n_tokens, ..] = b.g.ne(y);
    let weight = b.weight("time_mix_ln.weight", &[n_embd], Role::Norm)?;
    let bias = b.weight("time_mix_ln.bias", &[n_embd], Role::Bias)?;
    let heads = b.g.split_heads(y, b.cfg.rwkv.n_head);
    let heads = b.g.layer_norm(heads, None, None, EPS);
    let y = b.g.reshape(heads, &[n_embd, n_tokens]);
    let y = b.g.mul(y, weight);
    Ok(b.g.add(y, bias))
}

/// The FFN: value(max(key(x), 0)²), of a token mixed with the one before it, in RWKV 6 times a sigmoid of its own.
fn channel_mix(b: &mut Builder<'_>, x: Tensor, shifted: Tensor) -> Result<Tensor> {
    let (n_embd, n_ff) = (b.cfg.n_embd, b.layer().n_ff);
    let key = lerp(b, "channel_mix_lerp_k", x, shifted)?;
    let key = b.linear("channel_mix_key", n_ff, key)?;
    let key = relu_squared(b, key); // [n_ff, n]
    let y = b.linear("channel_mix_value", n_embd, key)?;
    if !b.has("channel_mix_receptance.weight") {
        return Ok(y);
    }
    let gate = lerp(b, "channel_mix_lerp_r", x, shifted)?;
    let gate = b.linear("channel_mix_receptance", n_embd, gate)?;
    let gate = b.g.sigmoid(gate);
    Ok(b.g.mul(gate, y))
}
