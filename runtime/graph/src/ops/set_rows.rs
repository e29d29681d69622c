//! cache[:, ids[i]] = rows[:, i], converted to the cache's dtype, in place, as ggml's set_rows. An id outside the
//! cache writes nothing; of rows for one id the last stays. Dims 2 and 3 of the cache are batches, over which the ids
//! repeat.
//!
//! Result: the cache itself: a view of source 0, written in place. Quantised rows need not have the bytes that ggml or
//! another device encodes.

use super::{Inferred, Rules, check, set_rows_cases, value::Data, value::Value};
use crate::graph::Graph;
use crate::quant;
use crate::tensor::{Shape, Tensor, TensorDef};
use llmrt_abi::{DType, Op};

impl Graph {
    /// Writes `rows` [n, r, b, c] into `cache` [n, n_slots, b, c] at `ids` [r, b', c'] (I32 or I64), in place; b' and
    /// c' divide b and c. Without batches the rows may be heads: [head_dim, n_heads, r], head_dim·n_heads = n.
    /// The result is the cache. Of rows for one id the last stays.
    pub fn set_rows(&mut self, cache: Tensor, rows: Tensor, ids: Tensor) -> Tensor {
        self.push_in_place(Op::SetRows, cache, &[Some(cache), Some(rows), Some(ids)], &[])
    }
}

pub(super) const RULES: Rules = Rules { infer, reference, decompose: None, cases: set_rows_cases::cases };

fn infer(src: &[Option<&TensorDef>], _params: &[u8]) -> Inferred {
    let cache = check::decodable(src, 0, "cache")?;
    let rows = dense_numbers(check::given(src, 1, "rows")?)?;
    let ids = dense_ids(check::given(src, 2, "ids")?)?;
    if !quant::can_encode(cache.dtype) {
        return Err(format!("cache is {}, which this build cannot encode", cache.dtype));
    }
    let [n, _, b, c] = cache.ne;
    let repeats = b.is_multiple_of(ids.ne[1]) && c.is_multiple_of(ids.ne[2]);
    if !repeats || ids.ne[3] != 1 {
        return Err(format!("ids {:?} for a cache of {:?}", ids.ne, cache.ne));
    }
    if rows.ne != [n, ids.ne[0], b, c] && !are_heads(rows.ne, cache.ne, ids.ne[0]) {
        let (r, found, of) = (ids.ne[0], rows.ne, cache.ne);
        return Err(format!("rows {found:?} are not {r} for each batch of the cache {of:?}"));
    }
    Ok((cache.dtype, cache.ne))
}

/// Whether `rows` are [head_dim, n_heads, r] for a cache without batches.
fn are_heads(rows: Shape, cache: Shape, r: u64) -> bool {
    cache[2..] == [1, 1] && rows[0].checked_mul(rows[1]) == Some(cache[0]) && rows[2..] == [r, 1]
}

fn dense_numbers(t: &TensorDef) -> Result<&TensorDef, String> {
    match t.dtype {
        DType::F32 | DType::F16 | DType::BF16 if t.has_dense_rows() => Ok(t),
        DType::F32 | DType::F16 | DType::BF16 => {
            Err("rows have gaps; make them contiguous with `cont`".into())
        }
        other => Err(format!("rows are {other}, expected F32, F16 or BF16")),
    }
}

fn dense_ids(t: &TensorDef) -> Result<&TensorDef, String> {
    match t.dtype {
        DType::I32 | DType::I64 if t.has_dense_rows() => Ok(t),
        DType::I32 | DType::I64 => Err("ids have gaps; make them contiguous with `cont`".into()),
        other => Err(format!("ids are {other}, expected I32 or I64")),
    }
}

fn reference(src: &[Option<&Value>], _params: &[u8]) -> Value {
    let (cache, rows, ids) = (check::arg(src, 0), check::arg(src, 1), check::arg(src, 2));
    let n = cache.ne[0] as usize;
    let [r, b, c] = [ids.ne[0], cache.ne[2], cache.ne[3]];
    let mut y = cache.clone();
    for (i, row) in rows.floats().chunks_exact(n).enumerate() {
        let (i, batch) = (i as u64 % r, i as u64 / r);
        let (ib, ic) = (batch % b % ids.ne[1], batch / b % c % ids.ne[2]);
        let id = ids.ints()[((ic * ids.ne[1] + ib) * r + i) as usize];
        if let Ok(id) = u64::try_from(id)
            && id < cache.ne[1]
        {
            put_row(&mut y, (batch * cache.ne[1] + id) as usize, row);
        }
    }
    y
}

/// Replaces a row; the others keep their very blocks.
fn put_row(y: &mut Value, at: usize, row: &[f32]) {
    let places = at * row.len()..(at + 1) * row.len();
    match &mut y.data {
        Data::F32(floats) => floats[places].copy_from_slice(row),
        Data::Blocks { dtype, bytes, floats } => {
            let row_bytes = quant::quantise(*dtype, row);
            bytes[at * row_bytes.len()..][..row_bytes.len()].copy_from_slice(&row_bytes);
            floats[places].copy_from_slice(row);
        }
        Data::I32(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::tests::{check, floats, ints};
    use crate::tensor::Role;

    #[test]
    fn ids_repeat_over_batches() {
        let build = |g: &mut Graph| {
            let cache = g.state("cache", DType::F32, &[1, 3, 2], Role::KCache);
            let rows = g.input("rows", DType::F32, &[1, 2, 2]);
            let ids = g.input("ids", DType::I64, &[2]);
            g.set_rows(cache, rows, ids)
        };
        let inputs = [("rows", floats(&[1., 2., 3., 4.])), ("ids", ints(&[2, 0]))];
        check(build, &inputs, &[2., 0., 1., 4., 0., 3.]);
    }
}
