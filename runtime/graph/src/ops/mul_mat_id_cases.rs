//! Operands for products with chosen experts: dtypes, numbers of experts, of chosen ones and of tokens, ids of all kinds.

use crate::ops::case::{self, Case};
use crate::ops::mul_mat::{QUANT_NMSE, limit};
use crate::tensor::Role;
use llmrt_abi::DType;

/// Sizes and dtypes of one product.
#[derive(Clone, Copy)]
struct Sizes {
    w: DType,
    x: DType,
    k: u64,
    m: u64,
    n_expert: u64,
    n_used: u64,
    /// Rows of x per token.
    n_x: u64,
    n_tokens: u64,
}

const SIZES: Sizes =
    Sizes { w: DType::F32, x: DType::F32, k: 256, m: 6, n_expert: 4, n_used: 2, n_x: 1, n_tokens: 3 };

pub(super) fn cases() -> Vec<Case> {
    let mut cases = vec![];
    for w in case::weight_dtypes() {
        for n_x in [1, 2] {
            for (m, n_tokens) in [(6, 3), (33, 1), (16, 20)] {
                cases.push(case(Sizes { w, n_x, m, n_tokens, ..SIZES }));
            }
        }
        cases.push(case(Sizes { w, k: 1024, n_expert: 9, n_used: 3, n_tokens: 2, ..SIZES }));
        cases.push(case(Sizes { w, x: DType::F16, ..SIZES }));
    }
    for w in [DType::F32, DType::F16, DType::Q4_0] {
        for (n_expert, n_used, n_x) in
            [(1, 1, 1), (1, 2, 1), (8, 8, 8), (16, 4, 2), (5, 6, 3), (128, 8, 1), (3, 6, 1)]
        {
            for n_tokens in [1, 2, 17, 65] {
                cases.push(case(Sizes { w, k: 96, m: 17, n_expert, n_used, n_x, n_tokens, ..SIZES }));
            }
        }
    }
    special(&mut cases);
    cases
}

fn special(cases: &mut Vec<Case>) {
    cases.push(Case::new("all tokens choose one expert of eight", |g, ints| {
        let w = g.weight("w", DType::F32, &[17, 5, 8], Role::Experts);
        let x = g.input("x", DType::F32, &[17, 1, 9]);
        let ids = g.input("ids", DType::I32, &[1, 9]);
        ints.push((ids, vec![6; 9]));
        g.mul_mat_id(w, x, ids);
    }));
    cases.push(Case::new("one token, ids a part of a longer row", |g, ints| {
        let w = g.weight("w", DType::F16, &[32, 7, 5], Role::Experts);
        let x = g.input("x", DType::F32, &[32, 2, 2]);
        let ids = g.input("ids", DType::I32, &[5, 2]);
        let used = g.slice(ids, 0, 0, 2);
        ints.push((ids, vec![4, 1, 0, 2, 3, 0, 3, 2, 1, 4]));
        g.mul_mat_id(w, x, used);
    }));
    for (dtype, nmse) in [(DType::F32, 1e-7), (DType::Q8_0, QUANT_NMSE)] {
        cases.push(
            Case::new(format!("ids outside the {dtype} experts"), |g, ints| {
                let w = g.weight("w", dtype, &[64, 7, 3], Role::Experts);
                let x = g.input("x", DType::F32, &[64, 1, 3]);
                let ids = g.input("ids", DType::I32, &[2, 3]);
                ints.push((ids, vec![0, 3, -1, 2, i32::MAX, i32::MIN]));
                g.mul_mat_id(w, x, ids);
            })
            .nmse(nmse),
        );
        cases.push(
            Case::new(format!("a part of the rows of {dtype} experts, permuted x"), |g, ints| {
                let w = g.weight("w", dtype, &[96, 12, 4], Role::Experts);
                let w = g.slice(w, 0, 32, 64);
                let w = g.slice(w, 1, 1, 9);
                let x = g.input("x", DType::F32, &[64, 3, 2]);
                let x = g.permute(x, [0, 2, 1, 3]); // [64, 2, 3]
                let ids = g.input("ids", DType::I32, &[2, 3]);
                ints.push((ids, vec![3, 0, 1, 2, 0, 1]));
                g.mul_mat_id(w, x, ids);
            })
            .nmse(nmse),
        );
    }
}

/// Ids that repeat and leave some experts without tokens.
fn case(s: Sizes) -> Case {
    let nmse = limit(s.w);
    let Sizes { w, x, k, m, n_expert, n_used, n_x, n_tokens } = s;
    let experts = format!("{n_used} of {n_expert} {w} experts [{k}, {m}]");
    Case::new(format!("{experts}, {n_x} rows of {x} for each of {n_tokens} tokens"), |g, ints| {
        let w = g.weight("w", w, &[k, m, n_expert], Role::Experts);
        let x = g.input("x", x, &[k, n_x, n_tokens]);
        let ids = g.input("ids", DType::I32, &[n_used, n_tokens]);
        let some = (0..n_used * n_tokens).map(|i| ((i * i * 7 + 3 * i + i / 5) % n_expert) as i32);
        ints.push((ids, some.collect()));
        g.mul_mat_id(w, x, ids);
    })
    .nmse(nmse)
}
