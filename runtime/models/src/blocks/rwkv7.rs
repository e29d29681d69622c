//! RWKV 7 (arXiv 2503.14456): a state is corrected where it has a key already, at a rate that each token sets.

use super::rwkv::{TimeMix, lerp_by, norm_of_heads, wkv_output};
use crate::builder::Builder;
use crate::error::Result;
use llmrt_graph::{Role, Tensor};

/// The heads' results, gated: [n_embd, n_tokens]; and the values, of the first layer where `first` has none.
pub(crate) fn rwkv7(b: &mut Builder<'_>, mix: &TimeMix, first: Option<Tensor>) -> Result<(Tensor, Tensor)> {
    let (rwkv, n_embd) = (&b.cfg.rwkv, b.cfg.n_embd);
    let mixed = mixed(b, mix.x, mix.shifted)?; // each [n_embd, n_tokens]
    let [x_r, x_w, x_k, x_v, x_a] = [mixed[0], mixed[1], mixed[2], mixed[3], mixed[4]];
    let r = b.linear("time_mix_receptance", n_embd, x_r)?;
    let w = decay(b, x_w)?;
    let k = b.linear("time_mix_key", n_embd, x_k)?;
    let v = b.linear("time_mix_value", n_embd, x_v)?;
    let (v, first) = match first {
        Some(first) => (towards(b, v, first, x_v)?, first),
        None => (v, v),
    };
    let rate = low_rank(b, 'a', rwkv.rate_rank, x_a, |_, low| low)?;
    let rate = b.g.sigmoid(rate);

    let removed = times(b, "time_mix_k_k", k)?;
    let removed = b.g.split_heads(removed, rwkv.n_head);
    let removed = b.g.l2_norm(removed, 1e-12); // [head_dim, n_head, n_tokens]
    let scaled = times(b, "time_mix_k_a", k)?;
    let learned = b.g.mul(rate, scaled);
    let change = b.g.sub(learned, scaled);
    let k = b.g.add(k, change); // k · (1 + (rate - 1) · k_a)

    let [r, w, k, v_heads, rate] = [r, w, k, v, rate].map(|t| b.g.split_heads(t, rwkv.n_head));
    let added = b.g.mul(removed, rate);
    let removed = b.g.neg(removed);
    let (reads, query_starts) = (mix.of.reads, mix.of.query_starts);
    let y = b.g.rwkv_wkv7_ragged(r, w, k, v_heads, removed, added, mix.state, reads, query_starts);
    let y = wkv_output(b, y, mix);
    let y = if b.has("time_mix_ln.weight") { norm_of_heads(b, y)? } else { y };
    let now = of_this_token(b, r, k, v_heads)?;
    let y = b.g.add(y, now);
    Ok((gated(b, y, mixed.get(5).copied())?, first))
}

/// A token mixed with the one before it, for receptance, decay, key, value, rate and, where there is one, the gate.
fn mixed(b: &mut Builder<'_>, x: Tensor, shifted: Tensor) -> Result<Vec<Tensor>> {
    let (n_embd, n) = (b.cfg.n_embd, if b.has("time_mix_g1.weight") { 6 } else { 5 });
    let weights = b.weight("time_mix_lerp_fused.weight", &[n_embd, 1, 1, n], Role::Other)?;
    let weights = b.g.reshape(weights, &[n_embd, n]);
    let mut one = |i| {
        let weight = b.g.slice(weights, 1, i, 1);
        lerp_by(b, weight, x, shifted)
    };
    Ok((0..n).map(&mut one).collect())
}

/// What states are multiplied with: [n_embd, n_tokens], at least exp(-exp(-½)).
fn decay(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    const LOG: f32 = -0.606531;
    let w = low_rank(b, 'w', b.cfg.rwkv.decay_rank, x, |b, low| b.g.tanh(low))?;
    let w = b.g.sigmoid(w);
    let w = b.g.scale(w, LOG);
    Ok(b.g.exp(w))
}

/// v, moved towards the first layer's values.
fn towards(b: &mut Builder<'_>, v: Tensor, first: Tensor, x: Tensor) -> Result<Tensor> {
    let share = low_rank(b, 'v', b.cfg.rwkv.value_rank, x, |_, low| low)?;
    let share = b.g.sigmoid(share);
    let way = b.g.sub(first, v);
    let way = b.g.mul(way, share);
    Ok(b.g.add(v, way))
}

/// Two matrices with `between` between them, plus a vector: those of this letter.
fn low_rank(
    b: &mut Builder<'_>,
    letter: char,
    rank: u64,
    x: Tensor,
    between: fn(&mut Builder<'_>, Tensor) -> Tensor,
) -> Result<Tensor> {
    let n_embd = b.cfg.n_embd;
    let low = b.linear(&format!("time_mix_{letter}1"), rank, x)?;
    let low = between(b, low);
    let y = b.linear(&format!("time_mix_{letter}2"), n_embd, low)?;
    let always = b.weight(&format!("time_mix_{letter}0.weight"), &[n_embd], Role::Other)?;
    Ok(b.g.add(y, always))
}

/// v · Σ r · k · r_k over each head: what a token adds to its own result.
fn of_this_token(b: &mut Builder<'_>, r: Tensor, k: Tensor, v: Tensor) -> Result<Tensor> {
    let (rwkv, n_embd, n_tokens) = (&b.cfg.rwkv, b.cfg.n_embd, b.g.ne(r)[2]);
    let weight = b.weight("time_mix_r_k.weight", &[n_embd], Role::Other)?;
    let weight = b.g.reshape(weight, &[rwkv.head_dim, rwkv.n_head]);
    let product = b.g.mul(k, r);
    let product = b.g.mul(product, weight);
    let sums = b.g.sum_rows(product); // [1, n_head, n_tokens]
    let y = b.g.mul(v, sums);
    Ok(b.g.reshape(y, &[n_embd, n_tokens]))
}

fn gated(b: &mut Builder<'_>, y: Tensor, x: Option<Tensor>) -> Result<Tensor> {
    let Some(x) = x else { return Ok(y) };
    let low = b.linear("time_mix_g1", b.cfg.rwkv.gate_rank, x)?;
    let low = b.g.sigmoid(low);
    let gate = b.linear("time_mix_g2", b.cfg.n_embd, low)?;
    Ok(b.g.mul(y, gate))
}

fn times(b: &mut Builder<'_>, name: &str, x: Tensor) -> Result<Tensor> {
    let weight = b.weight(&format!("{name}.weight"), &[b.cfg.n_embd], Role::Other)?;
    Ok(b.g.mul(x, weight))
}
