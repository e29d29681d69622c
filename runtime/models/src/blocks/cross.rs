//! Cross attention: a decoder's queries see what an encoder has read.

use crate::builder::Builder;
use crate::cache::{PagedLayer, ValueRows};
use crate::error::Result;
use crate::input::Input;
use llmrt_abi::op::AttentionParams;
use llmrt_graph::{Paged, Role, Tensor};

/// What queries [head_dim, n_head, n_tokens] see of the text that the encoder read: [head_dim_v * n_head, n_tokens]. Keys and
/// values of what it reads in this step, if it reads something, go into the caches first.
pub(crate) fn cross_attention(b: &mut Builder<'_>, q: Tensor, read: Option<[Tensor; 2]>) -> Result<Tensor> {
    let (il, n_kv_heads) = (b.il(), b.layer().n_head_kv as u32);
    let (k_row, v_row) = (b.cfg.n_embd_k(il), b.cfg.n_embd_v(il));
    b.add_cross(PagedLayer { il, k_row, v: ValueRows::Own(v_row) });
    let caches = [cross_cache(b, Role::KCache, k_row), cross_cache(b, Role::VCache, v_row)];
    let [k_cache, v_cache] = match read {
        None => caches,
        Some([k, v]) => {
            let slots = b.input(Input::EncoderSlots);
            [b.g.set_rows(caches[0], k, slots), b.g.set_rows(caches[1], v, slots)]
        }
    };
    let paged = Paged {
        block_table: b.input(Input::BlockTable(0)),
        seq_lens: b.input(Input::EncoderLens),
        query_starts: b.input(Input::QueryStarts),
    };
    let params = AttentionParams {
        n_kv_heads,
        block_size: b.batch.block_size as u32,
        bidirectional: 1,
        scale: b.cfg.attn_scale,
        ..AttentionParams::default()
    };
    let y = b.g.attention(q, k_cache, v_cache, &paged, &params);
    Ok(b.name(y, "cross_kqv_out"))
}

/// Rows [row, n_slots] of keys or values in the blocks of caches without a window.
fn cross_cache(b: &mut Builder<'_>, role: Role, row: u64) -> Tensor {
    let (name, dtype) = match role {
        Role::KCache => ("cross_k_cache", b.batch.k_type),
        _ => ("cross_v_cache", b.batch.v_type),
    };
    let n_slots = b.batch.n_blocks * b.batch.block_size;
    b.g.state(&format!("blk.{}.{name}", b.il()), dtype, &[row, n_slots], role)
}
