//! Products by warpgroups, on sm_90: they are reached where they should be, are right, and are tried before. They run as plain
//! C++, as documented: nothing here shows what a real card does.

mod common;
#[path = "../../cann/tests/common/placed.rs"]
mod placed;

use common::Machine;
use llmrt_abi::DType;
use llmrt_graph::ops::case::Case;
use llmrt_graph::quant::COMMON;
use llmrt_graph::{Role, Tensor};
use placed::{run, workspace};

const F16: &str = "mul_mat_f16_wgmma";
const F16_WIDE: &str = "mul_mat_f16_wgmma_wide";
const F16_NARROW: &str = "mul_mat_f16_wgmma_narrow";
const BF16: &str = "mul_mat_bf16_wgmma";
const BF16_NARROW: &str = "mul_mat_bf16_wgmma_narrow";

/// A machine of this kind.
fn machine(more: &str, options: &[(&str, &str)]) -> Machine {
    Machine::with_options(&format!("queue=late,memory=2g,{more}"), options)
}

/// A case is right, and these kernels ran so often in all.
fn check(m: &Machine, case: &Case, kernels: &[(&str, u64)]) {
    let stream = m.card(0).stream(1).unwrap();
    let error = run(&m.card(0), &stream, case).unwrap().unwrap_or_else(|| panic!("{}: refused", case.name));
    assert_eq!(m.reports(), [""; 0], "{}", case.name);
    assert!(error <= case.nmse, "{}: NMSE {error:e}, {:?}", case.name, wgmma_log(m));
    for (kernel, n) in kernels {
        assert_eq!(m.count(kernel), *n, "{}: runs of {kernel}", case.name);
    }
    let (taken, limit) = (stream.pool_stats().unwrap().peak, workspace(&m.card(0), case).unwrap());
    assert!(taken <= limit, "{} takes {taken} bytes of scratch memory, its verdicts name {limit}", case.name);
}

/// w [k, m, batches] times x [k, n, 2 batches]; sums are off by no more than halves of x are.
fn product(w: DType, [k, m, n, batches]: [u64; 4]) -> Case {
    let case = Case::new(format!("{w} [{k}, {m}] times {n} columns, {batches} batches"), |g, _| {
        let w = g.weight("w", w, &[k, m, batches], Role::Matrix);
        let x = g.input("x", DType::F32, &[k, n, 2 * batches]);
        g.mul_mat(w, x);
    });
    case.nmse(if w == DType::F16 { 1e-6 } else { 1e-9 })
}

/// The log's lines about wgmma.
fn wgmma_log(m: &Machine) -> Vec<String> {
    m.log.lock().iter().filter(|line| line.contains("wgmma")).cloned().collect()
}

/// Twice: the first time it is tried.
#[test]
fn tiles_that_are_full_and_tiles_that_are_not_are_right() {
    for (shape, f16, bf16) in [
        ([264, 300, 70, 1], F16, BF16),
        ([264, 300, 130, 1], F16_WIDE, BF16),
        ([40, 130, 257, 1], F16_WIDE, BF16),
        ([1032, 33, 65, 2], F16, BF16),
        ([264, 33, 200, 1], F16, BF16),
        ([64, 128, 128, 1], F16_NARROW, BF16_NARROW),
        ([1032, 100, 70, 1], F16_NARROW, BF16_NARROW),
        ([8, 100, 140, 1], F16, BF16),
    ] {
        for (dtype, kernel) in [(DType::F16, f16), (DType::BF16, bf16)] {
            let m = machine("sm=90", &[]);
            check(&m, &product(dtype, shape), &[(kernel, 2)]);
            assert_eq!(wgmma_log(&m), [""; 0]);
        }
    }
}

#[test]
fn a_device_tries_each_kernel_once() {
    let m = machine("sm=90", &[]);
    for n in 2..4 {
        check(&m, &product(DType::F16, [72, 120, 80, 1]), &[(F16_NARROW, n), (BF16_NARROW, 0)]);
    }
    check(&m, &product(DType::BF16, [72, 120, 80, 1]), &[(F16_NARROW, 3), (BF16_NARROW, 2)]);
}

#[test]
fn few_columns_few_tiles_other_chips_and_uneven_rows_go_another_way() {
    let case = product(DType::F16, [72, 120, 80, 1]);
    for chip in ["sm=75", "sm=80", "sm=89", "sm=100", "sm=120"] {
        check(&machine(chip, &[]), &case, &[(F16_NARROW, 0), ("mul_mat_f16_wide", 1)]);
    }
    let none = [(F16, 0), (F16_WIDE, 0), (F16_NARROW, 0)];
    for shape in [[72, 140, 64, 1], [68, 140, 80, 1]] {
        check(&machine("sm=90", &[]), &product(DType::F16, shape), &none);
    }
    check(&machine("sm=90,sms=16", &[]), &flat(72, 128, 128), &none);
}

/// One batch of w and x: two tiles.
fn flat(k: u64, m: u64, n: u64) -> Case {
    let case = Case::new(format!("[{k}, {m}] times {n} columns"), |g, _| {
        let w = g.weight("w", DType::F16, &[k, m], Role::Matrix);
        let x = g.input("x", DType::F32, &[k, n]);
        g.mul_mat(w, x);
    });
    case.nmse(1e-6)
}

/// w [k, m] of packed numbers times x [k, n, 2]; sums are off by no more than halves are.
fn packed(w: DType, [k, m, n]: [u64; 3]) -> Case {
    let case = Case::new(format!("{w} [{k}, {m}] times {n} columns"), |g, _| {
        let w = g.weight("w", w, &[k, m], Role::Matrix);
        let x = g.input("x", DType::F32, &[k, n, 2]);
        g.mul_mat(w, x);
    });
    case.nmse(1e-6)
}

/// A card of little memory has rows that come in two parts.
#[test]
fn packed_weights_become_halves_where_there_are_many_columns() {
    let m = machine("sm=90", &[]);
    for (n, dtype) in COMMON.into_iter().filter(|dtype| dtype.is_quantised()).enumerate() {
        let kernels = [(F16_WIDE, n as u64 + 2), ("halve_packed", n as u64 + 1)];
        check(&m, &packed(dtype, [256, 140, 256]), &kernels);
    }
    drop(m);
    let small = machine("sm=90,memory=64m", &[]);
    check(&small, &packed(DType::Q4_0, [512, 300, 256]), &[(F16_WIDE, 3), ("halve_packed", 2)]);
    drop(small);
    check(&machine("sm=90", &[]), &packed(DType::Q4_0, [256, 140, 49]), &[(F16_NARROW, 2)]);
    // Rows that share blocks while they are unpacked, and some that leave warps without one.
    for k in [32, 96, 1056] {
        check(&machine("sm=90", &[]), &packed(DType::Q4_1, [k, 141, 60]), &[(F16_NARROW, 2)]);
    }
    for (chip, n, kernel) in
        [("sm=90", 48, "mul_mat_q4_0_eights_8"), ("sm=89", 256, "mul_mat_q4_0_eights_tile")]
    {
        let case = packed(DType::Q4_0, [256, 140, n]).nmse(5e-4);
        check(&machine(chip, &[]), &case, &[("halve_packed", 0), (kernel, 1)]);
    }
}

/// Rows with gaps between them are no matter to a map; dims that were exchanged are.
#[test]
fn weights_with_gaps_are_taken_as_they_are() {
    let part = |exchanged: bool| {
        let case = Case::new("a part of weights", |g, _| {
            let w = g.weight("w", DType::F16, &[96, 120, 2], Role::Matrix);
            let w: Tensor = g.slice(w, 0, 16, 64);
            let w = if exchanged { g.permute(w, [0, 2, 1, 3]) } else { w };
            let x = g.input("x", DType::F32, &[64, 80, if exchanged { 120 } else { 2 }]);
            g.mul_mat(w, x);
        });
        case.nmse(1e-6)
    };
    check(&machine("sm=90", &[]), &part(false), &[(F16_NARROW, 2)]);
    check(&machine("sm=90", &[]), &part(true), &[(F16_NARROW, 0)]);
}

#[test]
fn activations_beyond_half_precision_lose_nothing() {
    for size in [1e-30, 1e-9, 1e6, 1e30] {
        for (w, kernel, nmse) in [(DType::F16, F16_NARROW, 1e-6), (DType::BF16, BF16_NARROW, 1e-9)] {
            let case = Case::new(format!("{w} times columns of {size:e}"), |g, _| {
                let w = g.weight("w", w, &[72, 200], Role::Matrix);
                let x = g.input("x", DType::F32, &[72, 80]);
                let x = g.scale(x, size);
                g.mul_mat(w, x);
            });
            check(&machine("sm=90", &[]), &case.nmse(nmse), &[(kernel, 2)]);
        }
    }
}

#[test]
fn a_kernel_that_is_wrong_on_a_card_is_not_used_and_is_logged_once() {
    let case = product(DType::F16, [72, 120, 80, 1]);
    let m = machine("sm=90,idle=mul_mat_f16_wgmma_narrow", &[]);
    check(&m, &case, &[(F16_NARROW, 1), ("mul_mat_f16_wide", 1)]);
    check(&m, &case, &[(F16_NARROW, 1), ("mul_mat_f16_wide", 2)]);
    assert_eq!(
        wgmma_log(&m),
        ["kernel `mul_mat_f16_wgmma_narrow` is not used: 71808 of 71808 numbers of its trial are wrong"]
    );
}

#[test]
fn a_kernel_that_a_card_refuses_is_not_used_and_is_logged_once() {
    let case = product(DType::BF16, [72, 120, 80, 1]);
    let m = machine("sm=90,refused=mul_mat_bf16_wgmma_narrow", &[]);
    check(&m, &case, &[(BF16_NARROW, 0), ("mul_mat_bf16_wide", 1)]);
    check(&m, &case, &[("mul_mat_bf16_wide", 2)]);
    let [line] = &wgmma_log(&m)[..] else { panic!("{:?}", wgmma_log(&m)) };
    assert!(line.contains("CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"), "{line}");
}

#[test]
fn an_option_leaves_the_kernel_out() {
    let m = machine("sm=90", &[("cuda.wgmma", "0")]);
    check(&m, &product(DType::F16, [72, 120, 80, 1]), &[(F16_NARROW, 0), ("mul_mat_f16_wide", 1)]);
    assert_eq!(wgmma_log(&m), [""; 0]);
}

/// The card is lost, as by any kernel that faults; the error names the remedy.
#[test]
fn a_trial_that_faults_names_the_option_that_leaves_the_kernel_out() {
    let m = machine("sm=90,fault=1:715", &[]);
    let stream = m.card(0).stream(1).unwrap();
    let error = run(&m.card(0), &stream, &product(DType::F16, [72, 120, 80, 1])).err().unwrap().to_string();
    assert!(error.contains("LLMRT_CUDA_WGMMA=0") && error.contains("ILLEGAL_INSTRUCTION"), "{error}");
    assert_eq!(m.reports(), [""; 0]);
}
