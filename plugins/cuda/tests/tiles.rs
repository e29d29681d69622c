//! Kernels for tensor cores, each reached and right, on the oldest chip and on a newer one. They run as plain C++, products
//! of matrices as documented: nothing here shows what a real card does.

mod common;
#[path = "../../cann/tests/common/placed.rs"]
mod placed;

use common::{Machine, bind};
use llmrt_abi::DType;
use llmrt_graph::ops::{case::Case, value::Value};
use llmrt_graph::{Role, Tensor};
use placed::{run, workspace};

/// A case's error is at most this on a chip, by way of this kernel.
fn check(chip: u32, kernel: &str, case: &Case, nmse: f64) {
    let m = Machine::new(&format!("queue=late,memory=2g,sm={chip}"));
    let stream = m.card(0).stream(1).unwrap();
    let error = run(&m.card(0), &stream, case).unwrap().unwrap_or_else(|| panic!("{}: refused", case.name));
    assert_eq!(m.reports(), [""; 0], "{} on sm_{chip}", case.name);
    assert!(error <= nmse, "{} on sm_{chip}: NMSE {error:e}", case.name);
    assert_eq!(m.count(kernel), 1, "{} on sm_{chip} goes by {kernel}", case.name);
    let (taken, limit) = (stream.pool_stats().unwrap().peak, workspace(&m.card(0), case).unwrap());
    assert!(taken <= limit, "{} takes {taken} bytes of scratch memory, its verdicts name {limit}", case.name);
}

/// w [k, m, batches] times x [k, n, 2 batches], whose numbers are times `size`.
fn product(w: DType, [k, m, n, batches]: [u64; 4], size: f32) -> Case {
    Case::new(format!("{w} [{k}, {m}] times {n} columns of {size:e}, {batches} batches"), |g, _| {
        let w = g.weight("w", w, &[k, m, batches], Role::Matrix);
        let x = g.input("x", DType::F32, &[k, n, 2 * batches]);
        let x = g.scale(x, size);
        g.mul_mat(w, x);
    })
}

/// 1 to 8 columns are one launch with a block per batch: the matrix is read once. Sizes are no multiples of 32 lanes.
#[test]
fn few_columns_share_one_read_of_the_weights() {
    for n in 1..=8u64 {
        // A row per warp where there are few for a card.
        let room = if n == 1 { "row".to_string() } else { n.next_power_of_two().to_string() };
        for (w, name) in [(DType::Q4_0, "q4_0_eights"), (DType::Q8_0, "q8_0_eights"), (DType::Q4_K, "q4_k")] {
            check(80, &format!("mul_mat_{name}_{room}"), &product(w, [768, 9, n, 2], 1.0), 5e-4);
        }
        // Rows that are no whole eights keep the file's layout.
        check(80, &format!("mul_mat_q4_0_{room}"), &product(DType::Q4_0, [800, 9, n, 2], 1.0), 5e-4);
        for w in [DType::F32, DType::F16, DType::BF16] {
            check(80, &format!("mul_mat_{w}_{room}").to_lowercase(), &product(w, [72, 9, n, 2], 1.0), 1e-9);
        }
    }
}

#[test]
fn halves_are_multiplied_in_wide_tiles_where_there_are_enough() {
    for (shape, size) in
        [([264, 300, 70, 1], "wide"), ([40, 130, 33, 2], "wide"), ([512, 33, 9, 1], "narrow")]
    {
        let f16 = product(DType::F16, shape, 1.0);
        check(75, &format!("mul_mat_f16_{size}"), &f16, 1e-6);
        check(89, &format!("mul_mat_f16_{size}"), &f16, 1e-6);
        let bf16 = product(DType::BF16, shape, 1.0);
        check(75, "mul_mat_float_tile", &bf16, 1e-7);
        check(89, &format!("mul_mat_bf16_{size}"), &bf16, 1e-9);
    }
}

/// F16 ends at 65504 and below 6e-8.
#[test]
fn activations_beyond_half_precision_lose_nothing() {
    for size in [1e-30, 1e-9, 1e6, 1e30] {
        check(90, "mul_mat_f16_narrow", &product(DType::F16, [72, 40, 12, 1], size), 1e-6);
        check(90, "mul_mat_bf16_narrow", &product(DType::BF16, [72, 40, 12, 1], size), 1e-9);
    }
}

/// Rows that are no multiple of 16 bytes, and such that begin between.
#[test]
fn unaligned_halves_are_multiplied_as_f32() {
    check(90, "mul_mat_float_tile", &product(DType::F16, [68, 40, 12, 1], 1.0), 1e-7);
    let part = Case::new("a part of rows of F16", |g, _| {
        let w = g.weight("w", DType::F16, &[96, 40], Role::Matrix);
        let w = g.slice(w, 0, 4, 64);
        let x = g.input("x", DType::F32, &[64, 12]);
        g.mul_mat(w, x);
    });
    check(90, "mul_mat_float_tile", &part, 1e-7);
}

/// w [k, m, n_expert] of the experts that ids [n_used, n_tokens] choose, some of which are none.
fn experts(w: DType, [k, m, n_expert]: [u64; 3], [n_used, n_tokens]: [u64; 2]) -> Case {
    Case::new(format!("{n_used} of {n_expert} {w} experts [{k}, {m}] for {n_tokens} tokens"), |g, ints| {
        let w = g.weight("w", w, &[k, m, n_expert], Role::Experts);
        let x = g.input("x", DType::F32, &[k, 1, n_tokens]);
        let ids = g.input("ids", DType::I32, &[n_used, n_tokens]);
        let n = n_expert as i32;
        let some = (0..(n_used * n_tokens) as i32)
            .map(|i| if i % 11 == 5 { n - i } else { (i * i * 7 + i / 5) % n });
        ints.push((ids, some.collect()));
        g.mul_mat_id(w, x, ids);
    })
}

/// Experts with several tiles, and more experts than a warp has lanes, most without a column.
#[test]
fn columns_of_an_expert_come_together() {
    for (sizes, used, size) in
        [([96, 130, 3], [2, 70], "wide"), ([64, 33, 70], [3, 9], "narrow"), ([32, 40, 1], [1, 300], "wide")]
    {
        for (w, kernel, older, nmse) in [
            (DType::F32, "mul_mat_float_tile".to_string(), None, 1e-9),
            (DType::F16, format!("mul_mat_f16_{size}"), None, 1e-6),
            (DType::BF16, format!("mul_mat_bf16_{size}"), Some("mul_mat_float_tile"), 1e-9),
            (DType::Q4_1, "mul_mat_q4_1_tile".into(), None, 5e-4),
            (DType::MXFP4, "mul_mat_mxfp4_tile".into(), None, 5e-4),
        ] {
            let case = experts(w, sizes, used);
            check(90, &kernel, &case, nmse);
            check(75, older.unwrap_or(&kernel), &case, nmse);
        }
    }
}

/// The columns of w [64, 40] times x [64, n], where one number of column 3 is `bad`.
fn columns(w: DType, n: u64, bad: f32) -> Vec<Vec<f32>> {
    let case = Case::new("a bad activation", |g, _| {
        let w = g.weight("w", w, &[64, 40], Role::Matrix);
        let x = g.input("x", DType::F32, &[64, n]);
        g.mul_mat(w, x);
    });
    let (x, y) = (Tensor(1), case.graph.nodes.last().unwrap().dst);
    let mut memory = case.values(7).unwrap();
    let mut numbers = floats(memory.bytes(x).unwrap());
    numbers[3 * 64 + 10] = bad;
    memory.set(&case.graph, x, &Value::f32([64, n, 1, 1], numbers)).unwrap();
    let m = Machine::new("queue=late");
    let stream = m.card(0).stream(1).unwrap();
    let bound = bind(&m.card(0), &case.graph, &memory).unwrap();
    stream.compute(&bound.raw).unwrap();
    let found = floats(&bound.read(&stream, &case.graph, y).unwrap());
    assert_eq!(m.reports(), [""; 0]);
    found.chunks(40).map(<[f32]>::to_vec).collect()
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
}

#[test]
fn nan_and_infinity_reach_the_columns_that_have_them_and_no_others() {
    for w in [DType::F32, DType::F16, DType::BF16, DType::Q8_0, DType::Q4_1] {
        for (n, bad) in [(4, f32::NAN), (4, f32::INFINITY), (12, f32::NAN), (12, f32::NEG_INFINITY)] {
            for (i, y) in columns(w, n, bad).iter().enumerate() {
                let is_bad = |y: &f32| if bad.is_nan() { y.is_nan() } else { !y.is_finite() };
                let right = if i == 3 { y.iter().all(is_bad) } else { y.iter().all(|y| y.is_finite()) };
                assert!(right, "{w}, {n} columns, {bad}: column {i}: {y:?}");
            }
        }
    }
}
