//! Operands for softmax: rows of all lengths, masks of both dtypes that repeat, slopes, sinks, strides.

use crate::graph::Graph;
use crate::ops::case::Case;
use crate::tensor::Tensor;
use llmrt_abi::{DType, op::SoftMaxParams};

pub(super) fn cases() -> Vec<Case> {
    let mut cases = vec![];
    for ne in [[64, 5, 4, 3], [1, 1, 1, 1], [16, 3, 1, 1], [33, 7, 1, 1], [2000, 2, 1, 1], [1025, 1, 3, 2]] {
        for scale in [1.0, 0.125, -2.0, 30.0] {
            cases.push(Case::new(format!("rows of {ne:?}, scale {scale}"), |g, _| {
                let x = g.input("x", DType::F32, &ne);
                g.soft_max(x, None, scale);
            }));
        }
    }
    for (ne, mask) in [
        ([10, 5, 4, 3], [10, 5, 1, 1]),
        ([10, 5, 4, 3], [10, 5, 4, 1]),
        ([10, 5, 4, 3], [10, 5, 2, 3]),
        ([10, 5, 4, 3], [10, 32, 1, 3]),
        ([17, 1, 6, 2], [17, 64, 3, 2]),
        ([1, 3, 2, 1], [1, 3, 2, 1]),
        ([1100, 3, 5, 1], [1100, 4, 1, 1]),
    ] {
        for dtype in [DType::F32, DType::F16] {
            for max_bias in [0.0, 8.0, 0.5] {
                for sinks in [false, true] {
                    let name =
                        format!("{ne:?} with a mask {mask:?} of {dtype}, bias {max_bias}, sinks {sinks}");
                    cases.push(Case::new(name, |g, _| {
                        let x = g.input("x", DType::F32, &ne);
                        let mask = g.input("mask", dtype, &mask);
                        let sinks = sinks.then(|| self::sinks(g, ne[2]));
                        g.soft_max_with(x, Some(mask), sinks, &SoftMaxParams { scale: 0.5, max_bias });
                    }));
                }
            }
        }
    }
    for ne in [[10, 5, 4, 3], [1, 1, 1, 1], [33, 2, 7, 1], [1030, 1, 2, 1]] {
        cases.push(Case::new(format!("{ne:?} with sinks and no mask"), |g, _| {
            let x = g.input("x", DType::F32, &ne);
            let sinks = sinks(g, ne[2]);
            g.soft_max_with(x, None, Some(sinks), &SoftMaxParams { scale: 2.0, max_bias: 0.0 });
        }));
    }
    cases.push(Case::new("strided rows", |g, _| {
        let x = g.input("x", DType::F32, &[30, 4]);
        let x = g.slice(x, 0, 7, 11);
        g.soft_max(x, None, 1.0);
    }));
    for dtype in [DType::F32, DType::F16] {
        cases.push(Case::new(format!("permuted heads, a part of a mask of {dtype}"), |g, _| {
            let x = g.input("x", DType::F32, &[21, 4, 3, 2]);
            let x = g.permute(x, [0, 2, 1, 3]); // [21, 3, 4, 2]
            let mask = g.input("mask", dtype, &[40, 9, 1, 2]);
            let mask = g.slice(mask, 0, 8, 21);
            let mask = g.slice(mask, 1, 2, 5);
            g.soft_max_with(x, Some(mask), None, &SoftMaxParams { scale: 0.25, max_bias: 4.0 });
        }));
    }
    cases
}

/// Scores of sinks, some above all others.
fn sinks(g: &mut Graph, n_heads: u64) -> Tensor {
    g.input("sinks", DType::F32, &[n_heads])
}
