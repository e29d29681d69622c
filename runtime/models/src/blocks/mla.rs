//! Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434), in the form that absorbs matrices: what all heads share is
//! cached, a latent vector and a rotated key for each token. Scores are products with cached rows, since
//! qᵀ(W·c) = (Wᵀq)ᵀc; and a head's result is its matrix of V times the weighted sum of latent vectors. Files of some models
//! have K's and V's matrices as one, which is not absorbed.

use super::attention::{attention, attention_output, attention_temperature, cached_rows, paged, rope};
use crate::builder::Builder;
use crate::cache::{PagedLayer, ValueRows};
use crate::error::Result;
use llmrt_abi::op::AttentionParams;
use llmrt_graph::{Role, Tensor};

/// Weighted sums of latent vectors for each head: [kv_rank * n_head, n_tokens].
pub(crate) fn mla(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    let (il, cfg) = (b.il(), &b.cfg.mla);
    let q = queries(b, x)?; // [k_row, n_head, n_tokens]
    let rows = keys(b, x)?; // [k_row, n_tokens]

    let v = ValueRows::ViewOfK(0..cfg.kv_rank);
    b.add_paged(PagedLayer { il, k_row: cfg.k_row(), v }, 0);
    let k_cache = cached_rows(b, 0, Role::KCache, rows, cfg.k_row(), cfg.k_row())?;
    let v_cache = b.g.slice(k_cache, 0, 0, cfg.kv_rank);

    let paged = paged(b, 0);
    let params = AttentionParams {
        n_kv_heads: 1,
        block_size: b.batch.block_size as u32,
        scale: b.cfg.attn_scale,
        ..AttentionParams::default()
    };
    let y = b.g.attention(q, k_cache, v_cache, &paged, &params);
    Ok(b.name(y, "kqv_out"))
}

/// Attention whose keys and values are made of latent vectors before they are cached, as heads (MiniCPM 3, PLM):
/// [v_dim * n_head, n_tokens].
pub(crate) fn expanded_mla(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    let (cfg, n_head, n_tokens) = (&b.cfg.mla, b.layer().n_head, b.g.ne(x)[1]);
    let [nope, turned] = parts_of_queries(b, x)?;
    let q = b.g.concat(nope, turned, 0); // [q_dim, n_head, n_tokens]

    let [latent, key] = latent_and_key(b, x)?;
    let kv = b.linear("attn_kv_b", (cfg.n_nope + cfg.v_dim) * n_head, latent)?;
    let kv = b.g.split_heads(kv, n_head); // [n_nope + v_dim, n_head, n_tokens]
    let nope = b.g.slice(kv, 0, 0, cfg.n_nope);
    let v = b.g.slice(kv, 0, cfg.n_nope, cfg.v_dim);
    let key = b.g.repeat(key, &[cfg.n_rope, n_head, n_tokens]); // One for all heads.
    let k = b.g.concat(nope, key, 0);
    attention(b, q, k, v)
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
    let (cfg, n_head, n) = (&b.cfg.mla, b.layer().n_head, b.g.ne(latent)[1]);
    let v_b = b.weight("attn_v_b.weight", &[cfg.kv_rank, cfg.v_dim, n_head], Role::Matrix)?;
    let latent = b.g.split_heads(latent, n_head); // [kv_rank, n_head, n]
    let v = times_heads(b, v_b, latent); // [v_dim, n_head, n]
    let v = b.g.cont(v);
    Ok(b.g.reshape(v, &[cfg.v_dim * n_head, n]))
}

/// Queries as cached rows are: the part without rotation times the head's matrix of K, then the rotated part.
fn queries(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    let (cfg, n_head) = (&b.cfg.mla, b.layer().n_head);
    let [nope, turned] = parts_of_queries(b, x)?;
    let k_b = b.weight("attn_k_b.weight", &[cfg.n_nope, cfg.kv_rank, n_head], Role::Matrix)?;
    let absorbed = times_heads(b, k_b, nope); // [kv_rank, n_head, n_tokens]
    let q = b.g.concat(absorbed, turned, 0);
    let q = b.name(q, "Qcur");
    Ok(attention_temperature(b, q))
}

/// The parts of each head's query without rotation and with it: [n_nope or n_rope, n_head, n_tokens].
fn parts_of_queries(b: &mut Builder<'_>, x: Tensor) -> Result<[Tensor; 2]> {
    let (cfg, n_head) = (&b.cfg.mla, b.layer().n_head);
    let n_q = cfg.q_dim() * n_head;
    let q = match cfg.q_rank {
        0 => b.linear("attn_q", n_q, x)?,
        n => {
            let low = b.linear("attn_q_a", n, x)?;
            let low = b.norm("attn_q_a_norm", low)?;
            b.linear("attn_q_b", n_q, low)?
        }
    };
    let q = b.g.split_heads(q, n_head); // [q_dim, n_head, n_tokens]
    let nope = b.g.slice(q, 0, 0, cfg.n_nope);
    let turned = b.g.slice(q, 0, cfg.n_nope, cfg.n_rope);
    Ok([nope, rope(b, "q_pe", turned)?])
}

/// The normed latent vector [kv_rank, n_tokens] and the rotated key of all heads [n_rope, 1, n_tokens].
fn latent_and_key(b: &mut Builder<'_>, x: Tensor) -> Result<[Tensor; 2]> {
    let cfg = &b.cfg.mla;
    let both = b.linear("attn_kv_a_mqa", cfg.k_row(), x)?;
    let latent = b.g.slice(both, 0, 0, cfg.kv_rank);
    let latent = b.norm("attn_kv_a_norm", latent)?;
    let key = b.g.slice(both, 0, cfg.kv_rank, cfg.n_rope);
    let key = b.g.split_heads(key, 1);
    Ok([latent, rope(b, "k_pe", key)?])
}

/// Rows of the cache: the normed latent vector, then the rotated key.
fn keys(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    let (cfg, n_tokens) = (&b.cfg.mla, b.g.ne(x)[1]);
    let [latent, key] = latent_and_key(b, x)?;
    let key = b.contiguous(key);
    let key = b.g.reshape(key, &[cfg.n_rope, n_tokens]);
    let rows = b.g.concat(latent, key, 0);
    Ok(b.name(rows, "Kcur"))
}

/// A matrix per head: `w` [n_in, n_out, n_head] times `x` [n_in, n_head, n], as a view [n_out, n_head, n].
fn times_heads(b: &mut Builder<'_>, w: Tensor, x: Tensor) -> Tensor {
    let x = b.g.permute(x, [0, 2, 1, 3]); // [n_in, n, n_head]
    let y = b.g.mul_mat(w, x); // [n_out, n, n_head]
    b.g.permute(y, [0, 2, 1, 3])
}
