//! The option `cuda.bf16_parts`: x of products of many columns with BF16 weights is rounded to one BF16, by every way that
//! they are multiplied. Kernels run as plain C++: nothing here shows what a real card does.

mod common;
#[path = "../../cann/tests/common/placed.rs"]
mod placed;

use common::{Machine, bind, libraries};
use llmrt_abi::DType;
use llmrt_graph::ops::{case::Case, value::Value};
use llmrt_graph::{Role, Tensor};
use placed::{run, workspace};

const ONE: (&str, &str) = ("cuda.bf16_parts", "1");
/// What BF16 loses: numbers from 1 to 2 are 2^-7 apart, so they are off by a square of 2^-14 / 12 on average, which is 2.2e-6
/// of theirs.
const ROUNDED: std::ops::RangeInclusive<f64> = 1.8e-6..=2.7e-6;

/// w [k, m] times x [k, n].
fn product([k, m, n]: [u64; 3]) -> Case {
    Case::new(format!("[{k}, {m}] times {n} columns"), |g, _| {
        let w = g.weight("w", DType::BF16, &[k, m], Role::Matrix);
        let x = g.input("x", DType::F32, &[k, n]);
        g.mul_mat(w, x);
    })
}

/// Its error, by way of so many launches of a kernel.
#[track_caller]
fn error(m: &Machine, case: &Case, kernel: &str, n: u64) -> f64 {
    let stream = m.card(0).stream(1).unwrap();
    let before = m.count(kernel);
    let error = run(&m.card(0), &stream, case).unwrap().unwrap();
    assert_eq!(m.reports(), [""; 0], "{}", case.name);
    assert_eq!(m.count(kernel) - before, n, "{} goes by {kernel}", case.name);
    let (taken, limit) = (stream.pool_stats().unwrap().peak, workspace(&m.card(0), case).unwrap());
    assert!(taken <= limit, "{} takes {taken} bytes of scratch memory, its verdicts name {limit}", case.name);
    error
}

#[test]
fn tiles_multiply_one_part() {
    for (shape, size) in [([264, 1030, 70], "wide"), ([512, 33, 9], "narrow"), ([40, 130, 130], "wide")] {
        let m = Machine::with_options("queue=late,sm=89", &[ONE]);
        let found = error(&m, &product(shape), &format!("mul_mat_bf16_one_{size}"), 1);
        assert!(ROUNDED.contains(&found), "{shape:?}: NMSE {found:e}");
        drop(m);
        let m = Machine::with_options("queue=late,sm=89", &[("cuda.bf16_parts", "2")]);
        let found = error(&m, &product(shape), &format!("mul_mat_bf16_{size}"), 1);
        assert!(found <= 1e-9, "{shape:?} in two parts: NMSE {found:e}");
    }
}

/// Each kernel runs twice: first it is tried.
#[test]
fn warpgroups_multiply_one_part() {
    for (n, width) in [(80, "_narrow"), (130, ""), (300, "_wide")] {
        let m = Machine::with_options("queue=late,sm=90", &[ONE]);
        let found = error(&m, &product([264, 300, n]), &format!("mul_mat_bf16_one_wgmma{width}"), 2);
        assert!(ROUNDED.contains(&found), "{n} columns: NMSE {found:e}");
        assert_eq!(m.log.lock().iter().filter(|line| line.contains("wgmma")).count(), 0);
    }
}

#[test]
fn the_library_multiplies_one_part() {
    let folder = libraries().join("cublas").display().to_string();
    let m = Machine::with_options("queue=late", &[ONE, ("cuda.cublas_dir", &folder)]);
    let found = error(&m, &product([264, 300, 70]), "cublasLtMatmul", 1);
    assert!(ROUNDED.contains(&found), "NMSE {found:e}");
}

/// The oldest chips multiply BF16 in F32, as a warp does few columns.
#[test]
fn what_is_multiplied_in_f32_keeps_all_of_x() {
    let m = Machine::with_options("queue=late,sm=75", &[ONE]);
    assert!(error(&m, &product([64, 40, 20]), "mul_mat_float_tile", 1) <= 1e-9);
    drop(m);
    let m = Machine::with_options("queue=late,sm=90", &[ONE]);
    assert!(error(&m, &product([64, 40, 8]), "mul_mat_bf16_8", 1) <= 1e-9);
}

#[test]
fn one_part_takes_half_of_the_scratch_memory() {
    let taken = |parts| {
        let m = Machine::with_options("queue=late,sm=89", &[("cuda.bf16_parts", parts)]);
        workspace(&m.card(0), &product([512, 64, 64])).unwrap()
    };
    assert_eq!(taken("2") - taken("1"), 512 * 64 * 2);
}

/// The columns of w [64, 40] times x [64, 12], where one number of column 3 is `number`.
fn columns(number: f32) -> Vec<Vec<f32>> {
    let case = product([64, 40, 12]);
    let (x, y) = (Tensor(1), case.graph.nodes.last().unwrap().dst);
    let mut memory = case.values(7).unwrap();
    let mut numbers = floats(memory.bytes(x).unwrap());
    numbers[3 * 64 + 10] = number;
    memory.set(&case.graph, x, &Value::f32([64, 12, 1, 1], numbers)).unwrap();
    let m = Machine::with_options("queue=late,sm=90", &[ONE]);
    let stream = m.card(0).stream(1).unwrap();
    let bound = bind(&m.card(0), &case.graph, &memory).unwrap();
    stream.compute(&bound.raw).unwrap();
    floats(&bound.read(&stream, &case.graph, y).unwrap()).chunks(40).map(<[f32]>::to_vec).collect()
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
}

/// Numbers that round to infinity, too: what is beyond BF16 is beyond F32 but for half a unit.
#[test]
fn nan_and_infinity_reach_their_column_and_no_other() {
    for number in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX] {
        for (i, y) in columns(number).iter().enumerate() {
            let is_bad = |y: &f32| if number.is_nan() { y.is_nan() } else { !y.is_finite() };
            let right = if i == 3 { y.iter().all(is_bad) } else { y.iter().all(|y| y.is_finite()) };
            assert!(right, "{number}: column {i}: {y:?}");
        }
    }
}
