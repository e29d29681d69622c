//! cache[:, ids[i]] = rows[:, i], converted to the cache's dtype, in place, as ggml's set_rows. An id outside the
//! cache writes nothing; of rows for one id the last stays. Dims 2 and 3 of the cache are batches, over which the ids
//! repeat.

use super::{Inferred, Rules, case::Case, check, value::Data, value::Value};
use crate::graph::Graph;
use crate::quant;
use crate::tensor::{Role, Shape, Tensor, TensorDef};
use llmrt_abi::{DType, Op};

impl Graph {
    /// Writes `rows` [n, r, b, c] into `cache` [n, n_slots, b, c] at `ids` [r, b', c'] (I32 or I64), in place; b' and
    /// c' divide b and c. Without batches the rows may be heads: [head_dim, n_heads, r], head_dim·n_heads = n.
    /// The result is the cache. Of rows for one id the last stays.
    pub fn set_rows(&mut self, cache: Tensor, rows: Tensor, ids: Tensor) -> Tensor {
        self.push_in_place(Op::SetRows, cache, &[Some(cache), Some(rows), Some(ids)], &[])
    }
}

pub(super) const RULES: Rules = Rules { infer, reference, decompose: None, cases };

fn infer(src: &[Option<&TensorDef>], _params: &[u8]) -> Inferred {
    let cache = check::decodable(src, 0, "cache")?;
    let rows = dense_numbers(check::given(src, 1, "rows")?)?;
    let ids = dense_ids(check::given(src, 2, "ids")?)?;
    if !quant::can_encode(cache.dtype) {
        return Err(format!("cache is {}, which this build cannot encode", cache.dtype));
    }
    let [n, _, b, c] = cache.ne;
    let repeats = b.checked_rem(ids.ne[1]) == Some(0) && c.checked_rem(ids.ne[2]) == Some(0);
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

fn cases() -> Vec<Case> {
    let mut cases = vec![];
    for &dtype in DType::ALL.iter().filter(|&&t| quant::can_encode(t)) {
        let nmse = if dtype.is_quantised() { 5e-4 } else { 1e-7 };
        cases.push(
            Case::new(format!("three rows into a {dtype} cache"), |g, ints| {
                let cache = g.state("cache", dtype, &[256, 8], Role::KCache);
                let rows = g.input("rows", DType::F32, &[256, 3]);
                let slots = g.input("slots", DType::I32, &[3]);
                ints.push((slots, vec![5, 0, 7]));
                g.set_rows(cache, rows, slots);
            })
            .nmse(nmse),
        );
    }
    for dtype in [DType::F32, DType::F16, DType::Q8_0] {
        cases.push(Case::new(format!("heads that are a part of a fused projection, {dtype}"), |g, ints| {
            let cache = g.state("cache", dtype, &[64, 16], Role::VCache);
            let qkv = g.input("qkv", DType::F32, &[192, 2]);
            let part = g.slice(qkv, 0, 128, 64);
            let heads = g.split_heads(part, 4);
            let slots = g.input("slots", DType::I32, &[2]);
            ints.push((slots, vec![15, 3]));
            g.set_rows(cache, heads, slots);
        }));
    }
    for dtype in [DType::F32, DType::F16, DType::Q8_0] {
        cases.push(Case::new(
            format!("the one head of a fused projection, several tokens, {dtype}"),
            |g, ints| {
                let cache = g.state("cache", dtype, &[64, 16], Role::VCache);
                let qkv = g.input("qkv", DType::F32, &[256, 3]);
                let part = g.slice(qkv, 0, 192, 64);
                let head = g.split_heads(part, 1);
                let slots = g.input("slots", DType::I32, &[3]);
                ints.push((slots, vec![15, 3, 7]));
                g.set_rows(cache, head, slots);
            },
        ));
        cases.push(Case::new(format!("the last of several rows for a slot stays, {dtype}"), |g, ints| {
            let cache = g.state("cache", dtype, &[1024, 8], Role::VCache);
            let rows = g.input("rows", DType::F32, &[1024, 9]);
            let slots = g.input("slots", DType::I32, &[9]);
            ints.push((slots, vec![3, 1, 3, 0, 1, 3, 3, 7, 1]));
            g.set_rows(cache, rows, slots);
        }));
    }
    for &dtype in DType::ALL.iter().filter(|&&t| quant::can_encode(t)) {
        for rows in [DType::F32, DType::F16, DType::BF16] {
            for ids in [DType::I32, DType::I64] {
                cases.push(
                    Case::new(
                        format!("{rows} rows into batches of {dtype}, {ids} ids for all"),
                        |g, ints| {
                            let cache = g.state("cache", dtype, &[256, 5, 2, 3], Role::KCache);
                            let rows = g.input("rows", rows, &[256, 2, 2, 3]);
                            let ids = g.input("ids", ids, &[2]);
                            ints.push((ids, vec![4, 1]));
                            g.set_rows(cache, rows, ids);
                        },
                    )
                    .nmse(5e-4),
                );
            }
        }
    }
    for dtype in [DType::F32, DType::F16, DType::Q8_0] {
        for (n, r, [b, c], [ids_b, ids_c]) in [
            (32, 3, [2, 1], [2, 1]),
            (64, 1, [4, 3], [2, 3]),
            (32, 4, [6, 4], [3, 2]),
            (1056, 2, [1, 2], [1, 1]),
        ] {
            cases.push(Case::new(
                format!("{r} rows of {n} in {b} by {c} batches of {dtype}, ids for {ids_b} by {ids_c}"),
                |g, ints| {
                    let cache = g.state("cache", dtype, &[n, 7, b, c], Role::KCache);
                    let rows = g.input("rows", DType::F32, &[n, r, b, c]);
                    let ids = g.input("ids", DType::I64, &[r, ids_b, ids_c]);
                    ints.push((ids, (0..(r * ids_b * ids_c) as i32).map(|i| i * 3 % 7).collect()));
                    g.set_rows(cache, rows, ids);
                },
            ));
        }
    }
    cases.push(Case::new("batches in other places of the cache, rows of another order", |g, ints| {
        let cache = g.state("cache", DType::F16, &[16, 3, 6], Role::KCache);
        let cache = g.permute(cache, [0, 2, 1, 3]); // [16, 6, 3]
        let cache = g.slice(cache, 2, 1, 2);
        let rows = g.input("rows", DType::F32, &[16, 2, 4]);
        let rows = g.permute(rows, [0, 2, 1, 3]); // [16, 4, 2]
        let ids = g.input("ids", DType::I32, &[4, 2]);
        ints.push((ids, vec![0, 5, 2, 0, 1, 1, -1, 6]));
        g.set_rows(cache, rows, ids);
    }));
    cases.push(Case::new("slots outside the cache write nothing", |g, ints| {
        let cache = g.state("cache", DType::F32, &[3, 4], Role::KCache);
        let rows = g.input("rows", DType::F32, &[3, 3]);
        let slots = g.input("slots", DType::I32, &[3]);
        ints.push((slots, vec![-1, 4, 2]));
        g.set_rows(cache, rows, slots);
    }));
    cases
}
