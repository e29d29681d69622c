//! cache[:, slots[i]] = rows[:, i], converted to the cache's dtype. A slot outside the cache writes nothing; of rows
//! for one slot the last stays.

use super::{Inferred, Rules, case::Case, check, value::Value};
use crate::graph::Graph;
use crate::quant;
use crate::tensor::{Role, Tensor, TensorDef};
use llmrt_abi::{DType, Op};

impl Graph {
    /// Writes `rows` [n, n_tokens], or [head_dim, n_heads, n_tokens] with head_dim·n_heads = n, into `cache`
    /// [n, n_slots] at `slots` [n_tokens], in place. The result is the cache. Of rows for one slot the last stays.
    pub fn set_rows(&mut self, cache: Tensor, rows: Tensor, slots: Tensor) -> Tensor {
        self.push_in_place(Op::SetRows, cache, &[Some(cache), Some(rows), Some(slots)], &[])
    }
}

pub(super) const RULES: Rules = Rules { infer, reference, decompose: None, cases };

fn infer(src: &[Option<&TensorDef>], _params: &[u8]) -> Inferred {
    let cache = check::decodable(src, 0, "cache")?;
    let rows = check::floats(src, 1, "rows")?;
    let slots = check::ints(src, 2, "slots")?;
    if !quant::can_encode(cache.dtype) {
        return Err(format!("cache is {}, which this build cannot encode", cache.dtype));
    }
    if cache.ne[2] != 1 || cache.ne[3] != 1 {
        return Err(format!("cache is {:?}, expected [n, n_slots]", cache.ne));
    }
    let n_tokens = slots.ne[0];
    check::vector(slots, n_tokens, "slots")?;
    let flat = rows.ne == [cache.ne[0], n_tokens, 1, 1];
    let heads = rows.ne[0].checked_mul(rows.ne[1]) == Some(cache.ne[0]) && rows.ne[2..] == [n_tokens, 1];
    if !flat && !heads {
        return Err(format!("rows {:?} for {n_tokens} rows of {} in the cache", rows.ne, cache.ne[0]));
    }
    Ok((cache.dtype, cache.ne))
}

fn reference(src: &[Option<&Value>], _params: &[u8]) -> Value {
    let (cache, rows, slots) = (check::arg(src, 0), check::arg(src, 1), check::arg(src, 2));
    let (n, n_slots) = (cache.ne[0] as usize, cache.ne[1] as usize);
    let mut y = cache.floats().to_vec();
    for (row, &slot) in rows.floats().chunks_exact(n).zip(slots.ints()) {
        if let Ok(slot) = usize::try_from(slot)
            && slot < n_slots
        {
            y[slot * n..(slot + 1) * n].copy_from_slice(row);
        }
    }
    Value::f32(cache.ne, y)
}

fn cases() -> Vec<Case> {
    let mut cases = vec![];
    for dtype in [DType::F32, DType::F16, DType::BF16, DType::Q8_0, DType::Q4_0] {
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
    cases.push(Case::new("slots outside the cache write nothing", |g, ints| {
        let cache = g.state("cache", DType::F32, &[3, 4], Role::KCache);
        let rows = g.input("rows", DType::F32, &[3, 3]);
        let slots = g.input("slots", DType::I32, &[3]);
        ints.push((slots, vec![-1, 4, 2]));
        g.set_rows(cache, rows, slots);
    }));
    cases
}
