//! Biases of attention scores by how far a key is from its query, learned for buckets of distances (T5, arXiv 1910.10683).

use super::attention::{attention_params, cache_kv, paged};
use crate::builder::Builder;
use crate::error::Result;
use crate::input::Input;
use llmrt_abi::DType;
use llmrt_abi::op::AttentionParams;
use llmrt_graph::{Paged, Role, Tensor};

/// From this distance on all keys are in one bucket.
const FAR: u64 = 128;

/// Which keys a query sees.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sides {
    /// All; those after the query have half of the buckets.
    Both,
    /// Those up to the query, which have all buckets.
    Before,
}

/// Attention of what an encoder reads to all of it, with biases as of `relative_bias`: [head_dim_v * n_head, n]. Nothing is
/// kept.
pub(crate) fn encoder_attention(
    b: &mut Builder<'_>,
    [q, k, v]: [Tensor; 3],
    biases: Tensor,
) -> Result<Tensor> {
    let [k, v] = [k, v].map(|heads| {
        let [head_dim, n_heads, n, _] = b.g.ne(heads);
        let rows = b.contiguous(heads);
        b.g.reshape(rows, &[head_dim * n_heads, n])
    });
    let paged = Paged {
        block_table: b.input(Input::EncoderTable),
        seq_lens: b.input(Input::EncoderLens),
        query_starts: b.input(Input::EncoderStarts),
    };
    let params = AttentionParams { bidirectional: 1, block_size: 1, ..attention_params(b) };
    let y = b.g.attention_with_biases(q, k, v, biases, &paged, &params);
    Ok(b.name(y, "kqv_out"))
}

/// Keys and values go into the cache, queries see it on these sides, with biases as of `relative_bias`:
/// [head_dim_v * n_head, n_tokens].
pub(crate) fn biased_attention(
    b: &mut Builder<'_>,
    [q, k, v]: [Tensor; 3],
    biases: Tensor,
    sides: Sides,
) -> Result<Tensor> {
    let [k_cache, v_cache] = cache_kv(b, k, v)?;
    let paged = paged(b, b.layer().window);
    let params = AttentionParams { bidirectional: u32::from(sides == Sides::Both), ..attention_params(b) };
    let y = b.g.attention_with_biases(q, k_cache, v_cache, biases, &paged, &params);
    Ok(b.name(y, "kqv_out"))
}

/// Biases [2 FAR + 1, n_head] by key - query, from -FAR on, of a table [n_head, n_buckets].
pub(crate) fn relative_bias(b: &mut Builder<'_>, name: &str, sides: Sides) -> Result<Tensor> {
    let n_buckets = b.cfg.n_relative_buckets;
    let table = b.weight(name, &[b.layer().n_head, n_buckets], Role::Embedding)?;
    let buckets = buckets(b, n_buckets, sides); // [2 FAR + 1]
    let rows = b.g.get_rows(table, buckets); // [n_head, 2 FAR + 1]
    let columns = b.g.permute(rows, [1, 0, 2, 3]);
    let biases = b.g.cont(columns);
    Ok(b.name(biases, "pos_bias"))
}

/// The bucket of each distance: one each for the near ones, then with bounds that grow by a factor.
fn buckets(b: &mut Builder<'_>, n_buckets: u64, sides: Sides) -> Tensor {
    let n = if sides == Sides::Both { n_buckets / 2 } else { n_buckets };
    let n_near = (n / 2) as f32;
    let last = n as f32 - 1.0 - n_near;
    let to_key = b.g.arange(-(FAR as f32), FAR as f32 + 1.0, 1.0);
    let distance = match sides {
        Sides::Both => b.g.abs(to_key),
        Sides::Before => {
            let back = b.g.neg(to_key);
            b.g.relu(back)
        }
    };
    let near = b.g.clamp(distance, 0.0, n_near);

    let past_near = b.g.clamp(distance, n_near, FAR as f32);
    let ratio = b.g.scale(past_near, n_near.recip());
    let log = b.g.log(ratio);
    // Bounds are whole numbers of steps; what rounding leaves below one counts as there.
    let steps = b.g.scale_bias(log, (n as f32 - n_near) / (FAR as f32 / n_near).ln(), 2e-5);
    let steps = b.g.floor(steps);
    let steps = b.g.clamp(steps, 0.0, last);
    let mut bucket = b.g.add(near, steps);
    if sides == Sides::Both {
        let is_after = b.g.step(to_key);
        let half = b.g.scale(is_after, n as f32);
        bucket = b.g.add(bucket, half);
    }
    b.g.cast(bucket, DType::I32)
}
