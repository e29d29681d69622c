//! Attention over the paged KV cache: projections, rotation, the cache's rows, the output projection.

use crate::builder::Builder;
use crate::cache::{PagedLayer, ValueRows};
use crate::config::{Config, RopeKind, Temperature};
use crate::error::{Error, Result};
use crate::input::Input;
use llmrt_abi::DType;
use llmrt_abi::op::{AttentionParams, SparseAttentionParams};
use llmrt_graph::{Activation, Paged, Role, Tensor};

/// Q [head_dim, n_head, n_tokens], K and V [head_dim, n_head_kv, n_tokens], from three matrices or from one that has
/// the rows of all three, in this order.
pub(crate) fn qkv(b: &mut Builder<'_>, x: Tensor) -> Result<(Tensor, Tensor, Tensor)> {
    let (il, layer) = (b.il(), b.layer());
    let n_q = layer.n_head * layer.head_dim_k;
    let (n_k, n_v) = (b.cfg.n_embd_k(il), b.cfg.n_embd_v(il));

    let (q, k, v) = match b.has("attn_qkv.weight") {
        true => {
            let all = projection(b, "attn_qkv", n_q + n_k + n_v, x)?;
            (b.g.slice(all, 0, 0, n_q), b.g.slice(all, 0, n_q, n_k), b.g.slice(all, 0, n_q + n_k, n_v))
        }
        false => (
            projection(b, "attn_q", n_q, x)?,
            projection(b, "attn_k", n_k, x)?,
            projection(b, "attn_v", n_v, x)?,
        ),
    };
    let q = b.g.split_heads(q, layer.n_head);
    let k = b.g.split_heads(k, layer.n_head_kv);
    let v = b.g.split_heads(v, layer.n_head_kv);
    Ok((q, k, b.name(v, "Vcur")))
}

/// Q alone, of layers that read the caches of others: [head_dim, n_head, n_tokens].
pub(crate) fn queries(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    let (il, layer) = (b.il(), b.layer());
    let n_q = layer.n_head * layer.head_dim_k;
    let q = match b.has("attn_qkv.weight") {
        true => {
            let all = projection(b, "attn_qkv", n_q + b.cfg.n_embd_k(il) + b.cfg.n_embd_v(il), x)?;
            b.g.slice(all, 0, 0, n_q)
        }
        false => projection(b, "attn_q", n_q, x)?,
    };
    Ok(b.g.split_heads(q, layer.n_head))
}

/// A product, within the bounds of models that have them (MPT, OLMo).
fn projection(b: &mut Builder<'_>, name: &str, n_out: u64, x: Tensor) -> Result<Tensor> {
    let y = b.linear(name, n_out, x)?;
    Ok(match b.cfg.clamp_qkv {
        bound if bound > 0.0 => b.g.clamp(y, -bound, bound),
        _ => y,
    })
}

/// Elements of each head of `heads` [head_dim, n_head, n_tokens], `n` from `start` on, side by side: [n * n_head, n_tokens].
pub(crate) fn part_of_heads(b: &mut Builder<'_>, heads: Tensor, start: u64, n: u64) -> Tensor {
    let [_, n_head, n_tokens, _] = b.g.ne(heads);
    let part = b.g.slice(heads, 0, start, n);
    let part = b.g.cont(part);
    b.g.reshape(part, &[n * n_head, n_tokens])
}

/// Norm of heads [head_dim, n_head, n_tokens], each with weights of its own; weights [1, n_head] are one factor for each.
pub(crate) fn norm_each_head(b: &mut Builder<'_>, name: &str, n: u64, heads: Tensor) -> Result<Tensor> {
    let y = b.plain_norm(name, heads);
    let weight = b.weight(&format!("{name}.weight"), &[n, b.g.ne(heads)[1]], Role::Norm)?;
    let y = b.g.mul(y, weight);
    Ok(b.name(y, name))
}

/// Norm of heads [head_dim, n_head, n_tokens], all of a token as one row.
pub(crate) fn norm_all_heads(b: &mut Builder<'_>, name: &str, heads: Tensor) -> Result<Tensor> {
    let [head_dim, n_head, n_tokens, _] = b.g.ne(heads);
    let rows = b.contiguous(heads);
    let rows = b.g.reshape(rows, &[head_dim * n_head, n_tokens]);
    let y = b.norm(name, rows)?;
    Ok(b.g.split_heads(y, n_head))
}

/// Attention of heads as most models have it, rotated where the layer rotates: [head_dim_v * n_head, n_tokens].
pub(crate) fn self_attention(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    let (q, k, v) = qkv(b, x)?; // [head_dim, n_head or n_head_kv, n_tokens]
    let (q, k) = (rope(b, "Qcur", q)?, rope(b, "Kcur", k)?);
    attention(b, q, k, v)
}

/// As `self_attention`, of heads of Q and K that are normed first.
pub(crate) fn normed_attention(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    let (q, k, v) = qkv(b, x)?; // [head_dim, n_head or n_head_kv, n_tokens]
    let (q, k) = (b.norm("attn_q_norm", q)?, b.norm("attn_k_norm", k)?);
    let (q, k) = (rope(b, "Qcur", q)?, rope(b, "Kcur", k)?);
    attention(b, q, k, v)
}

/// As `normed_attention`, each head with weights of its own.
pub(crate) fn attention_by_normed_head(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    let head_dim = b.layer().head_dim_k;
    let (q, k, v) = qkv(b, x)?; // [head_dim, n_head or n_head_kv, n_tokens]
    let q = norm_each_head(b, "attn_q_norm", head_dim, q)?;
    let k = norm_each_head(b, "attn_k_norm", head_dim, k)?;
    let (q, k) = (rope(b, "Qcur", q)?, rope(b, "Kcur", k)?);
    attention(b, q, k, v)
}

/// As `normed_attention`, all heads of Q or K as one row.
pub(crate) fn attention_by_normed_row(b: &mut Builder<'_>, x: Tensor) -> Result<Tensor> {
    let (q, k, v) = qkv(b, x)?; // [head_dim, n_head or n_head_kv, n_tokens]
    let (q, k) = (norm_all_heads(b, "attn_q_norm", q)?, norm_all_heads(b, "attn_k_norm", k)?);
    let (q, k) = (rope(b, "Qcur", q)?, rope(b, "Kcur", k)?);
    attention(b, q, k, v)
}

/// Turns heads by their positions.
pub(crate) fn rope(b: &mut Builder<'_>, name: &str, heads: Tensor) -> Result<Tensor> {
    let y = match b.cfg.rope.kind {
        RopeKind::None => heads,
        _ if !b.layer().has_rope => heads,
        _ => {
            let rope = &b.cfg.rope;
            let (params, has_factors) = match b.layer().window {
                0 => (&rope.params, true),
                _ => (&rope.windowed, rope.windows_have_factors),
            };
            let factors = if has_factors { rope_factors(b, params.n_dims)? } else { None };
            let positions = b.input(Input::Positions);
            b.g.rope(heads, positions, factors, params)
        }
    };
    Ok(b.name(y, name))
}

/// What frequencies are divided by: Llama 3's factors, or LongRoPE's for the context at hand.
fn rope_factors(b: &mut Builder<'_>, n_dims: u32) -> Result<Option<Tensor>> {
    let rope = &b.cfg.rope;
    let dims = [rope.n_factors()];
    let long = b.leaf("rope_factors_long.weight", &dims, Role::Other)?;
    let short = b.leaf("rope_factors_short.weight", &dims, Role::Other)?;
    let always = b.leaf("rope_freqs.weight", &dims, Role::Other)?;
    let by_context = if rope.n_ctx > rope.params.n_ctx_orig as u64 { long } else { short };
    let n_pairs = u64::from(n_dims) / 2;
    Ok(by_context.or(always).map(|all| if n_pairs < dims[0] { b.g.slice(all, 0, 0, n_pairs) } else { all }))
}

/// Queries [head_dim, n_head, n_tokens] times a factor for their positions (`Config::attn_temperature`).
pub(crate) fn attention_temperature(b: &mut Builder<'_>, q: Tensor) -> Tensor {
    let Temperature { scale, length, offset } = b.cfg.attn_temperature;
    if scale == 0.0 {
        return q;
    }
    let positions = b.input(Input::Positions);
    let positions = b.g.cast(positions, DType::F32);
    let positions = b.g.scale_bias(positions, 1.0, offset);
    // A quotient, since a product with 1 / length may be below the whole number that it should reach.
    let length = b.g.fill(positions, length);
    let steps = b.g.div(positions, length);
    let steps = b.g.floor(steps);
    let steps = b.g.scale_bias(steps, 1.0, 1.0);
    let log = b.g.log(steps);
    let factor = b.g.scale_bias(log, scale, 1.0);
    let factor = b.g.reshape(factor, &[1, 1, b.g.ne(q)[2]]);
    let q = b.g.mul(q, factor);
    b.name(q, "Qcur_tempered")
}

/// Keys and values go into the cache, queries see it: [head_dim_v * n_head, n_tokens].
pub(crate) fn attention(b: &mut Builder<'_>, q: Tensor, k: Tensor, v: Tensor) -> Result<Tensor> {
    attention_to(b, q, k, v, None)
}

/// As `attention`, of queries that see the keys at `chosen` positions [n, n_sets, n_tokens] alone: one set for all heads, or
/// one for each KV head.
pub(crate) fn attention_to(
    b: &mut Builder<'_>,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    chosen: Option<Tensor>,
) -> Result<Tensor> {
    cache_kv(b, k, v)?;
    attention_to_keys(b, q, chosen)
}

/// The layer's caches of K and V, with those of the step in their slots.
pub(crate) fn cache_kv(b: &mut Builder<'_>, k: Tensor, v: Tensor) -> Result<[Tensor; 2]> {
    let (il, layer) = (b.il(), b.layer());
    let (k_row, v_row) = (b.cfg.n_embd_k(il), b.cfg.n_embd_v(il));
    b.add_paged(PagedLayer { il, k_row, v: ValueRows::Own(v_row) }, layer.window);
    let k_cache = cached_rows(b, layer.window, Role::KCache, k, layer.head_dim_k, k_row)?;
    let v_cache = cached_rows(b, layer.window, Role::VCache, v, layer.head_dim_v, v_row)?;
    b.kv_caches.insert(il, [k_cache, v_cache]);
    Ok([k_cache, v_cache])
}

/// The caches of K and V that layer `il` of the model with this configuration writes, as they are before the step, for
/// layers that read them alone.
pub(crate) fn read_caches(b: &mut Builder<'_>, model: &Config, il: usize) {
    let n_slots = b.batch.n_blocks_of(model.layers[il].window) * b.batch.block_size;
    let (k_type, v_type) = (b.batch.k_type, b.batch.v_type);
    let k_name = format!("blk.{il}.k_cache");
    let k = b.g.state(&k_name, k_type, &[model.n_embd_k(il), n_slots], Role::KCache);
    let v = b.g.state(&format!("blk.{il}.v_cache"), v_type, &[model.n_embd_v(il), n_slots], Role::VCache);
    b.kv_caches.insert(il, [k, v]);
}

/// Queries see the caches that the layer reads, with the step's tokens in them: [head_dim_v * n_head, n_tokens].
pub(crate) fn attention_to_caches(b: &mut Builder<'_>, q: Tensor) -> Result<Tensor> {
    attention_to_keys(b, q, None)
}

fn attention_to_keys(b: &mut Builder<'_>, q: Tensor, chosen: Option<Tensor>) -> Result<Tensor> {
    let layer = b.layer();
    let [k_cache, v_cache] = b.kv_caches_of(layer.cache_of.unwrap_or(b.il()))?;
    let sinks = b.optional("attn_sinks.weight", &[layer.n_head], Role::Other)?;
    if let Some(chosen) = chosen {
        let y = attention_to_chosen(b, q, [k_cache, v_cache], layer.n_head_kv, chosen, sinks);
        return Ok(b.name(y, "kqv_out"));
    }
    let (paged, params) = (paged(b, layer.window), attention_params(b));
    let y = match sinks {
        None => b.g.attention(q, k_cache, v_cache, &paged, &params),
        Some(sinks) => b.g.attention_with_sinks(q, k_cache, v_cache, sinks, &paged, &params),
    };
    Ok(b.name(y, "kqv_out"))
}

/// What the layer's queries see, and how.
pub(super) fn attention_params(b: &Builder<'_>) -> AttentionParams {
    let layer = b.layer();
    // Seen from the last key, a window that ends one position later is one token shorter.
    let seen = layer.window.saturating_sub(u32::from(b.cfg.sees_before));
    let (window, chunk) = if b.cfg.has_chunks { (0, layer.window) } else { (seen, 0) };
    AttentionParams {
        n_kv_heads: layer.n_head_kv as u32,
        block_size: b.batch.block_size as u32,
        window,
        chunk,
        bidirectional: u32::from(!b.cfg.is_causal),
        scale: b.cfg.attn_scale,
        softcap: b.cfg.attn_softcap,
        max_bias: b.cfg.alibi_max_bias,
    }
}

/// What queries make of the keys and values at `chosen` positions of the caches.
pub(super) fn attention_to_chosen(
    b: &mut Builder<'_>,
    q: Tensor,
    [k_cache, v_cache]: [Tensor; 2],
    n_head_kv: u64,
    chosen: Tensor,
    sinks: Option<Tensor>,
) -> Tensor {
    let params = SparseAttentionParams {
        n_kv_heads: n_head_kv as u32,
        block_size: b.batch.block_size as u32,
        scale: b.cfg.attn_scale,
    };
    let paged = paged(b, 0);
    b.g.sparse_attention(q, k_cache, v_cache, chosen, sinks, &paged, &params)
}

/// The heads' results [n, n_tokens] times sigmoid(gate(x)).
pub(crate) fn gated(b: &mut Builder<'_>, x: Tensor, heads: Tensor) -> Result<Tensor> {
    let gate = b.linear("attn_gate", b.g.ne(heads)[0], x)?;
    Ok(b.g.glu(Activation::Sigmoid, gate, Some(heads)))
}

/// As `gated`, with one gate for each head.
pub(crate) fn gated_heads(b: &mut Builder<'_>, x: Tensor, heads: Tensor) -> Result<Tensor> {
    let gate = b.linear("attn_gate", b.layer().n_head, x)?;
    let gate = b.g.sigmoid(gate);
    Ok(times_each_head(b, heads, gate))
}

/// Heads [n, n_tokens] times a factor for each, `factors` [n_head, n_tokens].
pub(crate) fn times_each_head(b: &mut Builder<'_>, heads: Tensor, factors: Tensor) -> Tensor {
    let ([n, n_tokens, ..], [n_head, ..]) = (b.g.ne(heads), b.g.ne(factors));
    let factors = b.g.reshape(factors, &[1, n_head, n_tokens]);
    let heads = b.g.split_heads(heads, n_head);
    let heads = b.g.mul(heads, factors);
    b.g.reshape(heads, &[n, n_tokens])
}

/// The layer's K or V cache [row, n_slots] of heads of `head_dim` and a window, with `rows` in their slots.
pub(super) fn cached_rows(
    b: &mut Builder<'_>,
    window: u32,
    role: Role,
    rows: Tensor,
    head_dim: u64,
    row: u64,
) -> Result<Tensor> {
    let (name, suffix, dtype) = match role {
        Role::KCache => ("K", "k_cache", b.batch.k_type),
        _ => ("V", "v_cache", b.batch.v_type),
    };
    let cache = cache(b, window, role, [name, suffix], dtype, [head_dim, row])?;
    let slots = b.input(Input::Slots(window));
    Ok(b.g.set_rows(cache, rows, slots))
}

/// A state of the layer of rows by slot, each of heads.
pub(super) fn cache(
    b: &mut Builder<'_>,
    window: u32,
    role: Role,
    [name, suffix]: [&'static str; 2],
    dtype: DType,
    [head_dim, row]: [u64; 2],
) -> Result<Tensor> {
    // A head begins with a block, so that heads are read apart.
    if dtype.row_bytes(head_dim).and(dtype.row_bytes(row)).is_none() {
        let (layer, block) = (b.il(), dtype.block_elems());
        return Err(Error::CacheType { cache: name, layer, dtype, head_dim, block });
    }
    let n_slots = b.batch.n_blocks_of(window) * b.batch.block_size;
    Ok(b.g.state(&format!("blk.{}.{suffix}", b.il()), dtype, &[row, n_slots], role))
}

/// Where the caches with a window have the sequences.
pub(super) fn paged(b: &mut Builder<'_>, window: u32) -> Paged {
    Paged {
        block_table: b.input(Input::BlockTable(window)),
        seq_lens: b.input(Input::SeqLens),
        query_starts: b.input(Input::QueryStarts),
    }
}

/// The heads' results, mixed: [n_embd, n].
pub(crate) fn attention_output(b: &mut Builder<'_>, heads: Tensor) -> Result<Tensor> {
    let y = b.linear("attn_output", b.cfg.n_embd, heads)?;
    Ok(b.name(y, "attn_out"))
}
