//! Operands for matrix products: every dtype of weights with few and many columns, broadcasting, views, half floats.

use super::super::operand::NUMBERS;
use super::{QUANT_NMSE, limit};
use crate::graph::Graph;
use crate::ops::case::{self, Case};
use crate::tensor::{Role, Shape, Tensor};
use llmrt_abi::DType;

pub(super) fn cases() -> Vec<Case> {
    let mut cases = vec![];
    weights(&mut cases);
    odd_shapes(&mut cases);
    broadcasts(&mut cases);
    views(&mut cases);
    zeros(&mut cases);
    cases
}

/// Every dtype with few and many columns.
fn weights(cases: &mut Vec<Case>) {
    for dtype in case::weight_dtypes() {
        let block = dtype.block_elems() as u64;
        for n in [1, 2, 3, 8, 16, 33, 64] {
            for (m, k) in [(13, block), (37, 3 * block.max(32)), (16, 1024)] {
                cases.push(case(dtype, [k, m, 1, 1], DType::F32, [k, n, 1, 1]));
            }
        }
        for (m, n, k) in [(33, 7, 512), (5, 32, 768), (19, 1, 4096), (3, 5, 8192 + 256)] {
            cases.push(case(dtype, [k, m, 1, 1], DType::F32, [k, n, 1, 1]));
        }
        for x in [DType::F16, DType::BF16] {
            for (m, n) in [(18, 1), (7, 20)] {
                cases.push(case(dtype, [256, m, 1, 1], x, [256, n, 1, 1]));
            }
        }
    }
}

/// Activations that are mostly zeros, with weights that are for such.
fn zeros(cases: &mut Vec<Case>) {
    // Of BF16 weights the activations are to be operands, not computed: they are compared rounded.
    for dtype in case::weight_dtypes().filter(|dtype| *dtype != DType::BF16) {
        for (m, n) in [(64, 1), (208, 1), (33, 1), (16, 3), (48, 8), (64, 20), (128, 1), (384, 3), (128, 9)] {
            let name = format!("{dtype} weights of {m} rows times {n} rows that are mostly zeros");
            let build = |g: &mut Graph, _: &mut _| {
                let w = g.weight("w", dtype, &[512, m], Role::MatrixOfZeros);
                let x = g.input("x", DType::F32, &[512, n]);
                let x = g.scale_bias(x, 1.0, -0.8);
                let x = g.relu(x);
                g.mul_mat(w, x);
            };
            cases.push(Case::new(name, build).nmse(limit(dtype)));
        }
    }
}

fn odd_shapes(cases: &mut Vec<Case>) {
    let shapes =
        [(3, 1, 1), (3, 5, 7), (1, 9, 33), (129, 65, 17), (64, 64, 64), (2, 1, 1), (9, 2, 1025), (8, 4, 2)];
    for (m, n, k) in shapes {
        for w in NUMBERS {
            for x in NUMBERS {
                cases.push(case(w, [k, m, 1, 1], x, [k, n, 1, 1]));
            }
        }
    }
    cases.push(case(DType::F32, [2, 3, 1, 1], DType::F32, [2, 4000, 3, 1]));
    cases.push(case(DType::F16, [32, 3, 1, 1], DType::F32, [32, 0, 2, 1]));
    cases.push(case(DType::Q4_0, [32, 3, 1, 1], DType::F32, [32, 4, 0, 1]));
    cases.push(case(DType::Q4_0, [64, 3, 1, 1], DType::F16, [64, 400, 1, 1]));
}

fn broadcasts(cases: &mut Vec<Case>) {
    for dtype in [DType::F32, DType::F16, DType::BF16, DType::Q8_0, DType::Q4_0, DType::Q4_K] {
        for (w, x) in [
            ([1, 1], [3, 2]),
            ([3, 2], [3, 2]),
            ([2, 1], [6, 2]),
            ([1, 2], [1, 4]),
            ([2, 3], [4, 3]),
            ([5, 1], [10, 1]),
        ] {
            for n in [1, 3] {
                cases.push(case(dtype, [256, 6, w[0], w[1]], DType::F32, [256, n, x[0], x[1]]));
            }
        }
    }
}

/// Operands that are parts of others, or stored in another order.
fn views(cases: &mut Vec<Case>) {
    const AXES: [[usize; 4]; 5] = [[0, 2, 1, 3], [1, 0, 2, 3], [2, 0, 1, 3], [0, 3, 2, 1], [3, 2, 1, 0]];
    for w in NUMBERS {
        for axes in AXES {
            for (n, x) in [(1, DType::F32), (4, DType::F32), (3, DType::F16)] {
                let name = format!("{w} weights permuted by {axes:?} times {n} rows of {x}");
                let build = |g: &mut Graph, _: &mut _| {
                    let w = permuted(g, "w", w, [34, 5, 2, 3], axes);
                    let x = g.input("x", x, &[34, n, 4, 3]);
                    g.mul_mat(w, x);
                };
                cases.push(Case::new(name, build).nmse(limit(w)));
            }
        }
    }
    for x in NUMBERS {
        for axes in AXES {
            for w in [DType::F32, DType::F16, DType::Q4_0] {
                let name = format!("{w} weights times {x} rows permuted by {axes:?}");
                cases.push(
                    Case::new(name, |g, _| {
                        let w = g.input("w", w, &[64, 18, 2, 1]);
                        let x = permuted(g, "x", x, [64, 3, 4, 2], axes);
                        g.mul_mat(w, x);
                    })
                    .nmse(limit(w)),
                );
            }
        }
    }
    for dtype in [DType::F32, DType::F16, DType::BF16, DType::Q8_0, DType::Q4_0] {
        for n in [1, 5] {
            cases.push(
                Case::new(
                    format!("some slots of a K cache of {dtype} times {n} permuted queries"),
                    |g, _| {
                        let k = g.input("k", dtype, &[64, 2, 19]);
                        let k = g.slice(k, 2, 3, 10);
                        let k = g.permute(k, [0, 2, 1, 3]); // [64, 10, 2]
                        let q = permuted(g, "q", DType::F32, [64, n, 4, 1], [0, 2, 1, 3]);
                        g.mul_mat(k, q);
                    },
                )
                .nmse(limit(dtype)),
            );
        }
    }
    for dtype in NUMBERS {
        let name = format!("a V cache of {dtype}, transposed, times weights of keys");
        let build = |g: &mut Graph, _: &mut _| {
            let v = g.input("v", dtype, &[48, 2, 19]);
            let v = g.slice(v, 2, 0, 17);
            let v = g.permute(v, [2, 0, 1, 3]); // [17, 48, 2]
            let weights = g.input("weights", DType::F32, &[17, 3, 4]);
            g.mul_mat(v, weights);
        };
        cases.push(Case::new(name, build).nmse(limit(dtype)));
    }
    for dtype in [DType::Q8_0, DType::Q4_1, DType::MXFP4] {
        cases.push(
            Case::new(format!("a part of the rows of {dtype} weights and of x"), |g, _| {
                let w = g.weight("w", dtype, &[96, 12], Role::Matrix);
                let w = g.slice(w, 0, 32, 64);
                let x = g.input("x", DType::F32, &[80, 3]);
                let x = g.slice(x, 0, 16, 64);
                g.mul_mat(w, x);
            })
            .nmse(QUANT_NMSE),
        );
    }
}

/// A tensor of shape `ne` whose dim `d` is dim `axes[d]` of an input.
fn permuted(g: &mut Graph, name: &str, dtype: DType, ne: Shape, axes: [usize; 4]) -> Tensor {
    let mut dims = [1; 4];
    for (n, axis) in ne.into_iter().zip(axes) {
        dims[axis] = n;
    }
    let t = g.input(name, dtype, &dims);
    g.permute(t, axes)
}

fn case(w_type: DType, w: Shape, x_type: DType, x: Shape) -> Case {
    Case::new(format!("{w_type} weights {w:?} times {x_type} {x:?}"), |g, _| {
        let w = g.weight("w", w_type, &w, Role::Matrix);
        let x = g.input("x", x_type, &x);
        g.mul_mat(w, x);
    })
    .nmse(limit(w_type))
}
