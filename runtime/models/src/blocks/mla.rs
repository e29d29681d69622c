//! Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434), in the form that absorbs matrices: what all heads share is
//! cached, a latent vector and a rotated key for each token. Scores are products with cached rows, since
//! qᵀ(W·c) = (Wᵀq)ᵀc; and a head's result is its matrix of V times the weighted sum of latent vectors. Files of some models
//! have K's and V's matrices as one, which is not absorbed.

use super::attention::{
    attention, attention_output, attention_temperature, attention_to_chosen, cached_rows, paged, rope,
};
use crate::builder::Builder;
use crate::cache::{PagedLayer, ValueRows};
use crate::error::Result;
use llmrt_abi::op::AttentionParams;
use llmrt_graph::{Role, Tensor};
use std::cell::Cell;

/// Weighted sums of latent vectors for each head: [kv_rank * n_head, n_tokens].
pub(crate) fn mla(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    let low = mla_low(b, x)?;
    mla_to(b, x, low, None)
}

/// As `mla`, of what is between Q's matrices, and of queries that see the keys at `chosen` positions alone.
fn mla_to(b: &mut Builder<'_>, x: Tensor, low: Tensor, chosen: Option<Tensor>) -> Result<Tensor> {
    let (il, cfg, window) = (b.il(), b.mla(), b.layer().window);
    let q = queries(b, low)?; // [k_row, n_head, n_tokens]
    let rows = keys(b, x)?; // [k_row, n_tokens]

    let v = ValueRows::ViewOfK(0..cfg.kv_rank);
    b.add_paged(PagedLayer { il, k_row: cfg.k_row(), v }, window);
    let k_cache = cached_rows(b, window, Role::KCache, rows, cfg.k_row(), cfg.k_row())?;
    let v_cache = b.g.slice(k_cache, 0, 0, cfg.kv_rank);

    let sinks = b.optional("attn_sinks.weight", &[b.layer().n_head], Role::Other)?;
    if let Some(chosen) = chosen {
        let y = attention_to_chosen(b, q, [k_cache, v_cache], 1, chosen, sinks);
        return Ok(b.name(y, "kqv_out"));
    }
    let paged = paged(b, window);
    let params = AttentionParams {
        n_kv_heads: 1,
        block_size: b.batch.block_size as u32,
        window,
        scale: if window == 0 { b.cfg.attn_scale } else { (cfg.q_dim() as f32).sqrt().recip() },
        ..AttentionParams::default()
    };
    let y = match sinks {
        None => b.g.attention(q, k_cache, v_cache, &paged, &params),
        Some(sinks) => b.g.attention_with_sinks(q, k_cache, v_cache, sinks, &paged, &params),
    };
    Ok(b.name(y, "kqv_out"))
}

/// Attention whose keys and values are made of latent vectors before they are cached, as heads (MiniCPM 3, PLM):
/// [v_dim * n_head, n_tokens].
pub(crate) fn expanded_mla(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    let (cfg, n_head, n_tokens) = (b.mla(), b.layer().n_head, b.g.ne(x)[1]);
    let low = mla_low(b, x)?;
    let (nope, turned) = parts_of_queries(b, low)?;
    let q = with_turned(b, nope, turned); // [q_dim, n_head, n_tokens]

    let (latent, key) = latent_and_key(b, x)?;
    let kv = b.linear("attn_kv_b", (cfg.n_nope + cfg.v_dim) * n_head, latent)?;
    let kv = b.g.split_heads(kv, n_head); // [n_nope + v_dim, n_head, n_tokens]
    let nope = b.g.slice(kv, 0, 0, cfg.n_nope);
    let v = b.g.slice(kv, 0, cfg.n_nope, cfg.v_dim);
    let key = key.map(|key| b.g.repeat(key, &[cfg.n_rope, n_head, n_tokens])); // One for all heads.
    let k = with_turned(b, nope, key);
    attention(b, q, k, v)
}

/// As `mla`, of queries that see the keys at the positions which the layer's indexer finds, or which one of a layer before it
/// found: `chosen`.
pub(crate) fn indexed_mla(
    b: &mut Builder<'_>,
    x: Tensor,
    chosen: &Cell<Option<Tensor>>,
    indexer: Indexer,
) -> Result<Tensor> {
    let low = mla_low(b, x)?;
    if b.layer().index_stride > 0 {
        chosen.set(indexer(b, x, low)?);
    }
    mla_to(b, x, low, chosen.get())
}

/// Finds the positions that queries see, of hidden states and what is between Q's matrices; `None`: all.
type Indexer = fn(&mut Builder<'_>, Tensor, Tensor) -> Result<Option<Tensor>>;

/// What is between Q's two matrices, normed: [q_rank, n_tokens]; `x` where Q has one.
fn mla_low(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    match b.cfg.mla.q_rank {
        0 => Ok(x),
        n => {
            let low = b.linear("attn_q_a", n, x)?;
            b.norm("attn_q_a_norm", low)
        }
    }
}

/// Latent attention of `h`, mixed, and `x`: [n_embd, n], in the last layer the outputs alone.
pub(crate) fn mla_mixer(b: &mut Builder<'_>, h: Tensor, x: Tensor) -> Result<[Tensor; 2]> {
    let latent = mla(b, h)?; // [kv_rank * n_head, n_tokens]
    let [latent, x] = b.keep_outputs([latent, x]);
    let heads = mla_values(b, latent)?; // [v_dim * n_head, n]
    Ok([attention_output(b, heads)?, x])
}

/// The heads' values: [v_dim * n_head, n].
pub(crate) fn mla_values(b: &mut Builder<'_>, latent: Tensor) -> Result<Tensor> {
    let (cfg, n_head, n) = (b.mla(), b.layer().n_head, b.g.ne(latent)[1]);
    let v_b = b.weight("attn_v_b.weight", &[cfg.kv_rank, cfg.v_dim, n_head], Role::Matrix)?;
    let latent = b.g.split_heads(latent, n_head); // [kv_rank, n_head, n]
    let v = times_heads(b, v_b, latent); // [v_dim, n_head, n]
    let v = b.g.cont(v);
    Ok(b.g.reshape(v, &[cfg.v_dim * n_head, n]))
}

/// Queries as cached rows are: the part without rotation times the head's matrix of K, then the rotated part.
fn queries(b: &mut Builder<'_>, low: Tensor) -> Result<Tensor> {
    let (cfg, n_head) = (b.mla(), b.layer().n_head);
    let (nope, turned) = parts_of_queries(b, low)?;
    let k_b = b.weight("attn_k_b.weight", &[cfg.n_nope, cfg.kv_rank, n_head], Role::Matrix)?;
    let absorbed = times_heads(b, k_b, nope); // [kv_rank, n_head, n_tokens]
    let q = with_turned(b, absorbed, turned);
    let q = b.name(q, "Qcur");
    Ok(attention_temperature(b, q))
}

/// The parts of each head's query without rotation, and with it if there is one: [n_nope or n_rope, n_head, n_tokens].
fn parts_of_queries(b: &mut Builder<'_>, low: Tensor) -> Result<(Tensor, Option<Tensor>)> {
    let (cfg, n_head) = (b.mla(), b.layer().n_head);
    let name = if b.cfg.mla.q_rank == 0 { "attn_q" } else { "attn_q_b" };
    let q = b.linear(name, cfg.q_dim() * n_head, low)?;
    let q = b.g.split_heads(q, n_head); // [q_dim, n_head, n_tokens]
    let nope = b.g.slice(q, 0, 0, cfg.n_nope);
    if cfg.n_rope == 0 {
        return Ok((nope, None));
    }
    let turned = b.g.slice(q, 0, cfg.n_nope, cfg.n_rope);
    Ok((nope, Some(rope(b, "q_pe", turned)?)))
}

/// Heads, and after the elements of each the rotated ones.
fn with_turned(b: &mut Builder<'_>, x: Tensor, turned: Option<Tensor>) -> Tensor {
    match turned {
        None => b.contiguous(x),
        Some(turned) => b.g.concat(x, turned, 0),
    }
}

/// The normed latent vector [kv_rank, n_tokens], and the rotated key of all heads [n_rope, 1, n_tokens] if there is one.
fn latent_and_key(b: &mut Builder<'_>, x: Tensor) -> Result<(Tensor, Option<Tensor>)> {
    let cfg = b.mla();
    let both = b.linear("attn_kv_a_mqa", cfg.k_row(), x)?;
    let latent = b.g.slice(both, 0, 0, cfg.kv_rank);
    let latent = b.norm("attn_kv_a_norm", latent)?;
    if cfg.n_rope == 0 {
        return Ok((latent, None));
    }
    let key = b.g.slice(both, 0, cfg.kv_rank, cfg.n_rope);
    let key = if b.has("attn_k_norm.weight") { b.norm("attn_k_norm", key)? } else { key };
    let key = b.g.split_heads(key, 1);
    Ok((latent, Some(rope(b, "k_pe", key)?)))
}

/// Rows of the cache: the normed latent vector, then the rotated key.
fn keys(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    let (n_rope, n_tokens) = (b.mla().n_rope, b.g.ne(x)[1]);
    let (latent, key) = latent_and_key(b, x)?;
    let rows = match key {
        None => latent,
        Some(key) => {
            let key = b.contiguous(key);
            let key = b.g.reshape(key, &[n_rope, n_tokens]);
            b.g.concat(latent, key, 0)
        }
    };
    Ok(b.name(rows, "Kcur"))
}

/// A matrix per head: `w` [n_in, n_out, n_head] times `x` [n_in, n_head, n], as a view [n_out, n_head, n].
fn times_heads(b: &mut Builder<'_>, w: Tensor, x: Tensor) -> Tensor {
    let x = b.g.permute(x, [0, 2, 1, 3]); // [n_in, n, n_head]
    let y = b.g.mul_mat(w, x); // [n_out, n, n_head]
    b.g.permute(y, [0, 2, 1, 3])
}
