//! Cases of `set_rows`: caches of every dtype, heads, batches, ids that repeat.

use super::case::Case;
use super::operand::NUMBERS;
use crate::quant;
use crate::tensor::Role;
use llmrt_abi::DType;

pub(super) fn cases() -> Vec<Case> {
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
    for dtype in [DType::F32, DType::F16, DType::Q8_0] {
        cases.push(Case::new(format!("long rows, two of them for one slot, {dtype}"), |g, ints| {
            let cache = g.state("cache", dtype, &[8224, 4], Role::Other);
            let rows = g.input("rows", DType::F32, &[8224, 3]);
            let slots = g.input("slots", DType::I32, &[3]);
            ints.push((slots, vec![2, 0, 2]));
            g.set_rows(cache, rows, slots);
        }));
    }
    for &dtype in DType::ALL.iter().filter(|&&t| quant::can_encode(t)) {
        for rows in NUMBERS {
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
                    .nmse(if dtype.is_quantised() { 5e-4 } else { 1e-7 }),
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
