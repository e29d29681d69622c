//! Attention over the paged KV cache: projections, rotation, the cache's rows, the output projection.

use crate::builder::Builder;
use crate::cache::{PagedLayer, ValueRows};
use crate::config::RopeKind;
use crate::error::{Error, Result};
use crate::input::Input;
use llmrt_abi::op::AttentionParams;
use llmrt_graph::{Paged, Role, Tensor};

/// Q [head_dim, n_head, n_tokens], K and V [head_dim, n_head_kv, n_tokens], from three matrices or from one that has
/// the rows of all three, in this order.
pub(crate) fn qkv(b: &mut Builder<'_>, x: Tensor) -> Result<(Tensor, Tensor, Tensor)> {
    let (il, layer) = (b.il(), b.layer());
    let n_q = layer.n_head * b.cfg.head_dim_k;
    let (n_k, n_v) = (b.cfg.n_embd_k(il), b.cfg.n_embd_v(il));

    let (q, k, v) = match b.has("attn_qkv.weight") {
        true => {
            let all = b.linear("attn_qkv", n_q + n_k + n_v, x)?;
            (b.g.slice(all, 0, 0, n_q), b.g.slice(all, 0, n_q, n_k), b.g.slice(all, 0, n_q + n_k, n_v))
        }
        false => (b.linear("attn_q", n_q, x)?, b.linear("attn_k", n_k, x)?, b.linear("attn_v", n_v, x)?),
    };
    let q = b.g.split_heads(q, layer.n_head);
    let k = b.g.split_heads(k, layer.n_head_kv);
    let v = b.g.split_heads(v, layer.n_head_kv);
    Ok((q, k, b.name(v, "Vcur")))
}

/// Turns heads by their positions.
pub(crate) fn rope(b: &mut Builder<'_>, name: &str, heads: Tensor) -> Result<Tensor> {
    let factors = rope_factors(b)?;
    let y = match b.cfg.rope.kind {
        RopeKind::None => heads,
        _ => {
            let params = match b.layer().window {
                0 => &b.cfg.rope.params,
                _ => &b.cfg.rope.windowed,
            };
            let positions = b.input(Input::Positions);
            b.g.rope(heads, positions, factors, params)
        }
    };
    Ok(b.name(y, name))
}

/// What frequencies are divided by: Llama 3's factors, or LongRoPE's for the context at hand.
fn rope_factors(b: &mut Builder<'_>) -> Result<Option<Tensor>> {
    let rope = &b.cfg.rope;
    let dims = [rope.params.n_dims as u64 / 2];
    let long = b.leaf("rope_factors_long.weight", &dims, Role::Other)?;
    let short = b.leaf("rope_factors_short.weight", &dims, Role::Other)?;
    let always = b.leaf("rope_freqs.weight", &dims, Role::Other)?;
    let by_context = if rope.n_ctx > rope.params.n_ctx_orig as u64 { long } else { short };
    Ok(by_context.or(always))
}

/// Keys and values go into the cache, queries see it: [head_dim_v * n_head, n_tokens].
pub(crate) fn attention(b: &mut Builder<'_>, q: Tensor, k: Tensor, v: Tensor) -> Result<Tensor> {
    let (il, layer) = (b.il(), b.layer());
    let (k_row, v_row) = (b.cfg.n_embd_k(il), b.cfg.n_embd_v(il));
    b.add_paged(PagedLayer { il, k_row, v: ValueRows::Own(v_row) }, layer.window);
    let k_cache = cached_rows(b, layer.window, Role::KCache, k, b.cfg.head_dim_k, k_row)?;
    let v_cache = cached_rows(b, layer.window, Role::VCache, v, b.cfg.head_dim_v, v_row)?;

    let paged = paged(b, layer.window);
    let params = AttentionParams {
        n_kv_heads: layer.n_head_kv as u32,
        block_size: b.batch.block_size as u32,
        window: layer.window,
        scale: b.cfg.attn_scale,
        softcap: b.cfg.attn_softcap,
        max_bias: 0.0,
    };
    let y = b.g.attention(q, k_cache, v_cache, &paged, &params);
    Ok(b.name(y, "kqv_out"))
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
    // A head begins with a block, so that heads are read apart.
    if dtype.row_bytes(head_dim).and(dtype.row_bytes(row)).is_none() {
        let (layer, block) = (b.il(), dtype.block_elems());
        return Err(Error::CacheType { cache: name, layer, dtype, head_dim, block });
    }
    let n_slots = b.batch.n_blocks_of(window) * b.batch.block_size;
    let cache = b.g.state(&format!("blk.{}.{suffix}", b.il()), dtype, &[row, n_slots], role);
    let slots = b.input(Input::Slots(window));
    Ok(b.g.set_rows(cache, rows, slots))
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
