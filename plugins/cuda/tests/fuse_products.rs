//! Products and their neighbours as one kernel: gate, up and activation; x made 8 bits once, by the norm before it where
//! there is one. The bits are the same as without.

mod common;
#[path = "common/fused.rs"]
mod fused;
#[path = "../../cann/tests/common/placed.rs"]
mod placed;

use common::{Bound, Machine};
use fused::{check, floats, run};
use llmrt_abi::DType;
use llmrt_graph::ops::case::Case;
use llmrt_graph::{Activation, Graph, Role, Tensor};

fn matrix(g: &mut Graph, name: &str, dtype: DType, dims: &[u64]) -> Tensor {
    g.weight(name, dtype, dims, Role::Matrix)
}

/// Gate and up of x [256, n], up first.
fn gate_and_up(g: &mut Graph, dtype: DType, n: u64) -> [Tensor; 2] {
    let x = floats(g, "x", &[256, n]);
    let [up, gate] = ["up", "gate"].map(|name| {
        let w = matrix(g, name, dtype, &[256, 10]);
        g.mul_mat(w, x)
    });
    [gate, up]
}

#[test]
fn gate_up_and_activation_are_one_kernel_for_weights_of_every_type() {
    let packed = DType::ALL.iter().copied().filter(|dtype| dtype.is_quantised());
    let m = Machine::new("");
    let is_taken = |dtype: &DType| {
        let case = Case::new("products", |g, _| {
            gate_and_up(g, *dtype, 1);
        });
        placed::is_taken(&m.card(0), &case).unwrap()
    };
    let packed: Vec<DType> = packed.filter(is_taken).collect();
    drop(m);
    assert!(packed.len() >= 13, "{packed:?}");
    for dtype in packed {
        for n in [1, 4, 7, 20] {
            check([2, 5], |g, _| {
                let [gate, up] = gate_and_up(g, dtype, n);
                g.glu(Activation::Silu, gate, Some(up));
            });
        }
    }
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        check([1, 3], |g, _| {
            let [gate, up] = gate_and_up(g, dtype, 3);
            g.glu(Activation::Gelu, gate, Some(up));
        });
    }
}

/// Those for q, k and v, and two with a third of another type.
#[test]
fn products_of_one_column_are_one_kernel() {
    for (dtypes, launches) in [
        ([DType::Q4_0; 3], [2, 6]),
        ([DType::Q6_K; 3], [2, 6]),
        ([DType::F16; 3], [1, 3]),
        ([DType::Q4_K, DType::Q4_K, DType::Q6_K], [3, 6]),
        ([DType::Q4_K, DType::Q6_K, DType::Q4_K], [4, 6]),
    ] {
        check(launches, |g, _| {
            let x = floats(g, "x", &[256, 1]);
            for (i, (dtype, rows)) in dtypes.into_iter().zip([300, 7, 9]).enumerate() {
                let w = matrix(g, &format!("w{i}"), dtype, &[256, rows]);
                g.mul_mat(w, x);
            }
        });
    }
    // Of several columns each is by itself.
    check([4, 6], |g, _| {
        let x = floats(g, "x", &[256, 3]);
        for i in 0..3 {
            let w = matrix(g, &format!("w{i}"), DType::Q4_0, &[256, 9]);
            g.mul_mat(w, x);
        }
    });
}

#[test]
fn gates_go_through_every_activation_and_may_come_first() {
    for activation in Activation::ALL {
        check([2, 5], |g, _| {
            let [gate, up] = gate_and_up(g, DType::Q8_0, 3);
            g.glu(activation, up, Some(gate));
        });
    }
    check([2, 5], |g, _| {
        let [gate, up] = gate_and_up(g, DType::Q4_K, 8);
        g.swiglu_oai(gate, Some(up), 1.702, 7.0);
    });
}

#[test]
fn a_matrix_of_gates_and_ups_is_multiplied_and_activated_at_once() {
    for (dtype, launches) in [(DType::Q8_0, [2, 3]), (DType::F16, [1, 2])] {
        for (n, is_swapped) in [(1, false), (3, true), (4, false)] {
            check(launches, |g, _| {
                let (w, x) = (matrix(g, "w", dtype, &[64, 26]), floats(g, "x", &[64, n]));
                let y = g.mul_mat(w, x);
                match is_swapped {
                    true => g.glu_swapped(Activation::Silu, y),
                    false => g.glu(Activation::Silu, y, None),
                };
            });
        }
    }
}

/// Some of the experts are none.
#[test]
fn experts_have_gates_and_ups_at_once() {
    for (dtype, launches) in [(DType::Q4_0, [2, 5]), (DType::BF16, [1, 3])] {
        check(launches, |g, ints| {
            let x = floats(g, "x", &[64, 1, 3]);
            let ids = g.input("ids", DType::I32, &[2, 3]);
            ints.push((ids, vec![1, 3, 0, 9, -1, 2]));
            let [up, gate] = ["up", "gate"].map(|name| {
                let w = g.weight(name, dtype, &[64, 12, 4], Role::Experts);
                g.mul_mat_id(w, x, ids)
            });
            g.glu(Activation::Silu, gate, Some(up));
        });
    }
}

#[test]
fn what_only_looks_like_a_gate_stays_apart() {
    // Too many columns.
    check([3, 3], |g, _| {
        let [gate, up] = gate_and_up(g, DType::F32, 9);
        g.glu(Activation::Silu, gate, Some(up));
    });
    // Matrices of two types.
    check([4, 5], |g, _| {
        let x = floats(g, "x", &[64]);
        let [gate, up] = [("gate", DType::Q8_0), ("up", DType::Q4_0)].map(|(name, dtype)| {
            let w = matrix(g, name, dtype, &[64, 10]);
            g.mul_mat(w, x)
        });
        g.glu(Activation::Silu, gate, Some(up));
    });
    // Of two inputs.
    check([3, 3], |g, _| {
        let [gate, up] = [("gate", "a"), ("up", "b")].map(|(name, x)| {
            let (w, x) = (matrix(g, name, DType::F32, &[64, 10]), floats(g, x, &[64]));
            g.mul_mat(w, x)
        });
        g.glu(Activation::Silu, gate, Some(up));
    });
    // One product is both, and the other is neither.
    check([4, 5], |g, _| {
        let [gate, _] = gate_and_up(g, DType::Q8_0, 2);
        g.glu(Activation::Silu, gate, Some(gate));
    });
}

/// The gates' result may overlap them; it may overlap x only where x was packed before.
#[test]
fn memory_of_gates_and_of_x_is_used_again() {
    for (over, dtype, launches) in [
        ("gate", DType::F32, [1, 3]),
        ("gate", DType::Q8_0, [2, 5]),
        ("x", DType::F32, [3, 3]),
        ("x", DType::Q8_0, [2, 5]),
    ] {
        let mut tensors = None;
        let case = Case::new(format!("over {over}, {dtype}"), |g, _| {
            let [gate, up] = gate_and_up(g, dtype, 2);
            let y = g.glu(Activation::Silu, gate, Some(up));
            tensors = Some((if over == "x" { Tensor(0) } else { gate }, y));
        });
        let (a, y) = tensors.unwrap();
        let place = |bound: &mut Bound| bound.share(a, y, 8192, 0);
        let (fused, plain) = (run(&case, "1", place), run(&case, "0", place));
        assert_eq!([fused.0, plain.0], launches, "{}", case.name);
        assert!(fused.1 == plain.1, "{}: other bits", case.name);
    }
}

#[test]
fn products_with_one_x_share_it_in_8_bits() {
    for (n, dtype, launches) in [(1, DType::Q8_0, 2), (4, DType::Q6_K, 4), (20, DType::Q4_0, 4)] {
        check([launches, 6], |g, _| {
            let x = floats(g, "x", &[256, n]);
            for name in ["q", "k", "v"] {
                let w = matrix(g, name, dtype, &[256, 40]);
                g.mul_mat(w, x);
            }
        });
    }
    // The same rows in another shape, and experts whose columns are sorted before.
    check([7, 8], |g, ints| {
        let x = floats(g, "x", &[64, 9]);
        let w = matrix(g, "shared", DType::Q8_0, &[64, 10]);
        g.mul_mat(w, x);
        let ids = g.input("ids", DType::I32, &[2, 9]);
        ints.push((ids, (0..18).map(|i| i * 7 % 4).collect()));
        let x = g.reshape(x, &[64, 1, 9]);
        let w = g.weight("experts", DType::Q4_0, &[64, 12, 4], Role::Experts);
        g.mul_mat_id(w, x, ids);
        // Of other columns.
        let x = floats(g, "z", &[64, 9]);
        let w = matrix(g, "other", DType::Q8_0, &[64, 10]);
        let y = g.mul_mat(w, x);
        g.scale(y, 2.0);
    });
}

/// A row of x is written between two products with it.
#[test]
fn x_is_packed_again_after_it_was_written() {
    check([5, 5], |g, ints| {
        let x = g.state("x", DType::F32, &[64, 3], Role::KCache);
        let w = matrix(g, "w", DType::Q8_0, &[64, 10]);
        g.mul_mat(w, x);
        let (rows, ids) = (floats(g, "rows", &[64, 1]), g.input("ids", DType::I32, &[1]));
        ints.push((ids, vec![1]));
        let x = g.set_rows(x, rows, ids);
        g.mul_mat(w, x);
    });
}

#[test]
fn norms_leave_their_result_in_8_bits_for_products_that_follow() {
    for n in [1, 3, 12] {
        check([2, 3], |g, _| {
            let (x, w) = (floats(g, "x", &[320, n]), floats(g, "w", &[320]));
            let h = g.rms_norm(x, w, 1e-5);
            let w = matrix(g, "q", DType::Q8_0, &[320, 10]);
            g.mul_mat(w, h);
        });
        // A sum, its norm, the weight apart; two products.
        check([if n == 1 { 2 } else { 3 }, 7], |g, _| {
            let [a, b] = ["a", "b"].map(|name| floats(g, name, &[256, n]));
            let sum = g.add(a, b);
            let (h, w) = (g.rms_norm(sum, None, 1e-5), floats(g, "w", &[256]));
            let h = g.mul(h, w);
            for name in ["q", "k"] {
                let w = matrix(g, name, DType::Q5_K, &[256, 10]);
                g.mul_mat(w, h);
            }
        });
    }
    // Floats need no packed x.
    check([2, 2], |g, _| {
        let (x, w) = (floats(g, "x", &[64]), floats(g, "w", &[64]));
        let h = g.layer_norm(x, w, w, 1e-5);
        let w = matrix(g, "q", DType::F16, &[64, 10]);
        g.mul_mat(w, h);
    });
}

/// The router stands between the norm and the experts.
#[test]
fn experts_find_the_norm_in_8_bits_after_their_router() {
    check([5, 9], |g, _| {
        let (x, w) = (floats(g, "x", &[64, 2]), floats(g, "w", &[64]));
        let h = g.rms_norm(x, w, 1e-5);
        let router = matrix(g, "router", DType::F32, &[64, 4]);
        let logits = g.mul_mat(router, h);
        let ids = g.top_k(logits, 2);
        g.soft_max(logits, None, 1.0);
        let h = g.reshape(h, &[64, 1, 2]);
        let [up, gate] = ["up", "gate"].map(|name| {
            let w = g.weight(name, DType::Q4_0, &[64, 32, 4], Role::Experts);
            g.mul_mat_id(w, h, ids)
        });
        g.glu(Activation::Silu, gate, Some(up));
    });
}
