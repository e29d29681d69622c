//! Products that cuBLASLt does where its library is there: reached, right, captured, and done by our kernels where it fails.
//! The library is a simulated one: nothing here shows what the vendor's does.

mod common;
#[path = "../../cann/tests/common/placed.rs"]
mod placed;

use common::{Machine, bind, libraries};
use llmrt_abi::DType;
use llmrt_graph::ops::case::Case;
use llmrt_graph::{Graph, Role, Tensor};
use placed::{run, workspace};

/// A machine with the library.
fn with_library(config: &str, options: &[(&str, &str)]) -> Machine {
    let folder = libraries().join("cublas").display().to_string();
    Machine::with_options(config, &[options, &[("cuda.cublas_dir", folder.as_str())]].concat())
}

/// w [k, m] times x [k, n], whose numbers are times `size`.
fn product(w: DType, [k, m, n]: [u64; 3], size: f32) -> Case {
    Case::new(format!("{w} [{k}, {m}] times {n} columns of {size:e}"), |g, _| {
        multiply(g, w, [k, m, n], size);
    })
}

fn multiply(g: &mut Graph, w: DType, [k, m, n]: [u64; 3], size: f32) -> Tensor {
    let w = g.weight("w", w, &[k, m], Role::Matrix);
    let x = g.input("x", DType::F32, &[k, n]);
    let x = g.scale(x, size);
    g.mul_mat(w, x)
}

/// A case's error is at most this, by so many products of the library.
#[track_caller]
fn check(m: &Machine, case: &Case, n_products: u64, nmse: f64) {
    let stream = m.card(0).stream(1).unwrap();
    let before = m.count("cublasLtMatmul");
    let error = run(&m.card(0), &stream, case).unwrap().unwrap_or_else(|| panic!("{}: refused", case.name));
    assert_eq!(m.reports(), [""; 0], "{}", case.name);
    assert!(error <= nmse, "{}: NMSE {error:e}", case.name);
    assert_eq!(m.count("cublasLtMatmul") - before, n_products, "{}", case.name);
    let (taken, limit) = (stream.pool_stats().unwrap().peak, workspace(&m.card(0), case).unwrap());
    assert!(taken <= limit, "{} takes {taken} bytes of scratch memory, its verdicts name {limit}", case.name);
}

/// Lines of the log that have a word.
fn lines(m: &Machine, word: &str) -> Vec<String> {
    m.log.lock().iter().filter(|line| line.contains(word)).cloned().collect()
}

#[test]
fn halves_are_multiplied_by_the_library_with_the_rounding_of_our_kernels() {
    for (config, sm) in [("queue=late,sm=90", 90), ("queue=now,sm=75", 75)] {
        let m = with_library(config, &[]);
        for shape in [[264, 300, 70], [40, 130, 33], [8, 1, 9]] {
            check(&m, &product(DType::F16, shape, 1.0), 1, 1e-6);
            // Two parts of x; the oldest chips have no such kernel, and do not halve for it.
            let (n, nmse) = if sm == 75 { (0, 1e-7) } else { (2, 1e-9) };
            check(&m, &product(DType::BF16, shape, 1.0), n, nmse);
        }
        assert_eq!((m.count("mul_mat_f16_wide"), m.count("mul_mat_f16_narrow")), (0, 0));
    }
}

#[test]
fn activations_of_any_size_keep_their_bits() {
    let m = with_library("queue=late", &[]);
    for size in [1e-30, 1e-3, 1.0, 40.0, 1e6, 1e30] {
        check(&m, &product(DType::F16, [72, 1100, 12], size), 1, 1e-6);
        check(&m, &product(DType::BF16, [72, 40, 12], size), 2, 1e-9);
    }
}

#[test]
fn what_the_library_is_not_for_stays_with_our_kernels() {
    let m = with_library("queue=late", &[]);
    check(&m, &product(DType::F16, [64, 40, 8], 1.0), 0, 1e-7);
    check(&m, &product(DType::F32, [64, 40, 20], 1.0), 0, 1e-7);
    check(&m, &product(DType::Q8_0, [64, 40, 20], 1.0), 0, 5e-4);
    // Rows that are no multiple of 16 bytes.
    check(&m, &product(DType::F16, [68, 40, 12], 1.0), 0, 1e-7);
    let batches = Case::new("two matrices", |g, _| {
        let w = g.weight("w", DType::F16, &[64, 40, 2], Role::Matrix);
        let x = g.input("x", DType::F32, &[64, 12, 2]);
        g.mul_mat(w, x);
    });
    check(&m, &batches, 0, 1e-6);
    let experts = Case::new("experts", |g, ints| {
        let w = g.weight("w", DType::F16, &[64, 40, 4], Role::Experts);
        let x = g.input("x", DType::F32, &[64, 1, 12]);
        let ids = g.input("ids", DType::I32, &[2, 12]);
        ints.push((ids, (0..24).map(|i| i * 5 % 4).collect()));
        g.mul_mat_id(w, x, ids);
    });
    check(&m, &experts, 0, 1e-6);
    // Several batches of x for one matrix are one product.
    let many = Case::new("batches of x", |g, _| {
        let w = g.weight("w", DType::F16, &[64, 40], Role::Matrix);
        let x = g.input("x", DType::F32, &[64, 12, 3]);
        g.mul_mat(w, x);
    });
    check(&m, &many, 1, 1e-6);
}

/// Results of a plan's runs, all the same, and what the simulator counted.
fn four_runs(m: &Machine, case: &Case, names: [&str; 3]) -> [u64; 3] {
    let (card, stream) = (m.card(0), m.card(0).stream(1).unwrap());
    let bound = bind(&card, &case.graph, &case.values(7).unwrap()).unwrap();
    let dst = case.graph.nodes.last().unwrap().dst;
    let plain = Machine::count;
    let before = names.map(|name| plain(m, name));
    let plan = stream.plan(bound.raw.clone()).unwrap();
    let results: Vec<Vec<u8>> = (0..4)
        .map(|_| {
            bound.buffer(dst).fill(0, bound.buffer(dst).size(), 0xee).unwrap();
            stream.run(&plan, 1).unwrap();
            bound.read(&stream, &case.graph, dst).unwrap()
        })
        .collect();
    assert!(results.iter().all(|bytes| *bytes == results[0]), "{}", case.name);
    assert_eq!(m.reports(), [""; 0], "{}", case.name);
    [0, 1, 2].map(|i| m.count(names[i]) - before[i])
}

#[test]
fn products_are_captured_and_their_algorithm_is_chosen_once() {
    let mut m = with_library("queue=late", &[]);
    for (dtype, n) in [(DType::F16, 1), (DType::BF16, 2)] {
        let names = ["cublasLtMatmul", "cublasLtMatmulAlgoGetHeuristic", "graph"];
        let counts = four_runs(&m, &product(dtype, [64, 40, 20], 1.0), names);
        assert_eq!(counts, [2 * n, 1, 3], "{dtype}: the first run and the capture");
    }
    m.close();
    assert_eq!(m.count("left"), 0);
}

#[test]
fn products_with_one_x_halve_it_once() {
    let case = Case::new("q, k and v", |g, _| {
        let x = g.input("x", DType::F32, &[64, 20]);
        let x = g.scale(x, 3.0);
        for (name, dtype) in [("q", DType::F16), ("k", DType::F16), ("v", DType::F16), ("z", DType::BF16)] {
            let w = g.weight(name, dtype, &[64, 40], Role::Matrix);
            g.mul_mat(w, x);
        }
    });
    for (options, n_products) in [(&[("cuda.cublas", "1")], 5), (&[("cuda.cublas", "0")], 0)] {
        let m = with_library("queue=late", options);
        check(&m, &case, n_products, 1e-6);
        assert_eq!((m.count("halve_f16"), m.count("halve_bf16")), (1, 1));
    }
}

/// The first product, or the second part of one, fails; or none is begun.
#[test]
fn whatever_fails_is_done_by_our_kernels_and_logged_once() {
    for (what, words, f16, bf16) in [
        ("closed", "CUBLAS_STATUS_NOT_INITIALIZED (1)", 0, 0),
        ("nothing", "finds no algorithm", 0, 0),
        ("1", "CUBLAS_STATUS_EXECUTION_FAILED (13)", 1, 0),
        ("3", "CUBLAS_STATUS_EXECUTION_FAILED (13)", 1, 2),
    ] {
        let m = with_library(&format!("queue=late,cublas={what}"), &[]);
        check(&m, &product(DType::F16, [64, 40, 20], 1.0), f16, 1e-6);
        check(&m, &product(DType::BF16, [64, 40, 20], 1.0), bf16, 1e-9);
        check(&m, &product(DType::F16, [64, 40, 20], 1.0), 0, 1e-6);
        let log = lines(&m, "cuBLASLt");
        assert!(log.len() == 1 && log[0].contains(words), "cublas={what}: {log:?}");
    }
}

/// While a plan is captured, and when it is launched again.
#[test]
fn a_product_that_fails_in_a_capture_is_done_by_our_kernel() {
    let m = with_library("queue=late,cublas=2", &[]);
    let names = ["cublasLtMatmul", "mul_mat_f16_narrow", "graph"];
    assert_eq!(four_runs(&m, &product(DType::F16, [64, 40, 20], 1.0), names)[..2], [2, 1]);
}

#[test]
fn without_the_library_or_switched_off_no_version_is_read() {
    let case = product(DType::F16, [64, 40, 20], 1.0);
    let m = with_library("queue=late", &[("cuda.cublas", "0")]);
    check(&m, &case, 0, 1e-6);
    assert_eq!((m.count("cublasLtGetProperty"), lines(&m, "cuBLASLt").len()), (0, 0));
    drop(m);
    let m = Machine::new("queue=late");
    check(&m, &case, 0, 1e-6);
    let log = lines(&m, "no cuBLASLt");
    assert!(log.len() == 1 && log[0].contains("libcublasLt.so.12"), "{log:?}");
}

#[test]
fn a_library_later_than_the_driver_is_not_used() {
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("libcublasLt.so.13");
    std::fs::copy(libraries().join("libcuda.so.1"), &file).unwrap();
    std::os::unix::fs::symlink(&file, folder.path().join("libcublasLt.so")).unwrap();
    let dir = folder.path().display().to_string();
    let m = Machine::with_options("queue=late,version=12040", &[("cuda.cublas_dir", &dir)]);
    check(&m, &product(DType::F16, [64, 40, 20], 1.0), 0, 1e-6);
    let log = lines(&m, "no cuBLASLt");
    assert!(log.len() == 1 && log[0].contains("is of CUDA 13, the driver is for 12"), "{log:?}");
}
