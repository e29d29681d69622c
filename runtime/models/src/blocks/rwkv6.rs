//! RWKV 6 (arXiv 2404.05892): what a token is mixed by with the one before it, and how fast states fade, depends on both.

use super::rwkv::{TimeMix, lerp, lerp_by, norm_of_heads, wkv_output};
use crate::builder::Builder;
use crate::error::Result;
use llmrt_graph::{Activation, Role, Tensor};

/// The heads' results, gated: [n_embd, n_tokens]. Models without a bonus for the token at hand (RWKV6-Qwen2, arXiv
/// 2505.03005) have gated linear attention in its place.
pub(crate) fn rwkv6(b: &mut Builder<'_>, mix: &TimeMix) -> Result<Tensor> {
    let (rwkv, n_embd) = (&b.cfg.rwkv, b.cfg.n_embd);
    let n_kv = rwkv.n_head_kv * rwkv.head_dim;
    let [x_w, x_k, x_v, x_r, x_g] = mixed(b, mix.x, mix.shifted)?; // each [n_embd, n_tokens]
    let r = b.linear("time_mix_receptance", n_embd, x_r)?;
    let r = b.g.split_heads(r, rwkv.n_head); // [head_dim, n_head, n_tokens]
    let k = b.linear("time_mix_key", n_kv, x_k)?;
    let k = shared_heads(b, k);
    let v = b.linear("time_mix_value", n_kv, x_v)?;
    let v = shared_heads(b, v);
    let decay = decay(b, x_w)?;

    let (state, of) = (mix.state, &mix.of);
    let has_bonus = b.has("time_mix_first.weight");
    let y = match has_bonus {
        true => {
            let first = b.weight("time_mix_first.weight", &[rwkv.head_dim, rwkv.n_head], Role::Other)?;
            b.g.rwkv_wkv6_ragged(k, v, r, first, decay, state, of.reads, of.query_starts)
        }
        false => {
            let faded = b.g.mul(k, decay);
            let k = b.g.sub(k, faded);
            let scale = (rwkv.head_dim as f32).sqrt().recip();
            b.g.gated_linear_attn_ragged(k, v, r, decay, state, of.reads, of.query_starts, scale)
        }
    };
    let y = wkv_output(b, y, mix);
    let gate = b.linear("time_mix_gate", n_embd, x_g)?;
    match has_bonus {
        true => {
            let y = norm_of_heads(b, y)?;
            Ok(b.g.glu(Activation::Silu, gate, Some(y)))
        }
        false => Ok(b.g.glu(Activation::Sigmoid, gate, Some(y))),
    }
}

/// A token mixed with the one before it, for decay, key, value, receptance and gate.
fn mixed(b: &mut Builder<'_>, x: Tensor, shifted: Tensor) -> Result<[Tensor; 5]> {
    let (n_embd, rank, n_tokens) = (b.cfg.n_embd, b.cfg.rwkv.mix_rank, b.g.ne(x)[1]);
    let base = lerp(b, "time_mix_lerp_x", x, shifted)?;
    let low = b.linear("time_mix_w1", 5 * rank, base)?;
    let low = b.g.tanh(low);
    let low = b.g.reshape(low, &[rank, 5, n_tokens]);
    let low = b.g.permute(low, [0, 2, 1, 3]); // [rank, n_tokens, 5]
    let w2 = b.weight("time_mix_w2.weight", &[rank, n_embd, 5], Role::Matrix)?;
    let by_token = b.g.mul_mat(w2, low); // [n_embd, n_tokens, 5]
    let always = always(b)?;
    Ok([0, 1, 2, 3, 4].map(|i| {
        let weight = b.g.slice(by_token, 2, i as u64, 1);
        let weight = b.g.add(weight, always[i]);
        lerp_by(b, weight, x, shifted)
    }))
}

/// What is added to those weights for every token: five tensors, or one.
fn always(b: &mut Builder<'_>) -> Result<[Tensor; 5]> {
    let n_embd = b.cfg.n_embd;
    if let Some(all) = b.optional("time_mix_lerp_fused.weight", &[n_embd, 1, 1, 5], Role::Other)? {
        let all = b.g.reshape(all, &[n_embd, 5]);
        return Ok([0, 1, 2, 3, 4].map(|i| b.g.slice(all, 1, i, 1)));
    }
    let mut one = |which: &str| b.weight(&format!("time_mix_lerp_{which}.weight"), &[n_embd], Role::Other);
    Ok([one("w")?, one("k")?, one("v")?, one("r")?, one("g")?])
}

/// What states are multiplied with: [head_dim, n_head, n_tokens].
fn decay(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    let (n_embd, rank) = (b.cfg.n_embd, b.cfg.rwkv.decay_rank);
    let low = b.linear("time_mix_decay_w1", rank, x)?;
    let low = b.g.tanh(low);
    let w = b.linear("time_mix_decay_w2", n_embd, low)?;
    let always = b.weight("time_mix_decay.weight", &[n_embd], Role::Other)?;
    let w = b.g.add(w, always);
    let w = b.g.exp(w);
    let w = b.g.neg(w);
    let w = b.g.exp(w);
    Ok(b.g.split_heads(w, b.cfg.rwkv.n_head))
}

/// Heads of K or V, each as often as heads share it: [head_dim, n_head, n_tokens].
fn shared_heads(b: &mut Builder<'_>, x: Tensor) -> Tensor {
    let rwkv = &b.cfg.rwkv;
    let heads = b.g.split_heads(x, rwkv.n_head_kv);
    match rwkv.n_head / rwkv.n_head_kv {
        1 => heads,
        each => b.g.repeat_interleave(heads, 1, each as u32),
    }
}
