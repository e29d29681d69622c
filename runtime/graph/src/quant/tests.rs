//! Tests of all formats: golden blocks, bounds of the error, validity.

use super::*;

/// Numbers that look like weights: bell-shaped around 0, the same on every run.
fn weights(n: usize) -> Vec<f32> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut uniform = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 24) as f32 - 0.5
    };
    (0..n).map(|_| (0..6).map(|_| uniform()).sum::<f32>() * 0.1).collect()
}

/// Σ(a - b)² / Σ b².
fn nmse(a: &[f32], b: &[f32]) -> f64 {
    let error: f64 = a.iter().zip(b).map(|(a, b)| (*a as f64 - *b as f64).powi(2)).sum();
    error / b.iter().map(|b| (*b as f64).powi(2)).sum::<f64>()
}

fn from_hex(hex: &str) -> Vec<u8> {
    let digit = |c: u8| (c as char).to_digit(16).unwrap() as u8;
    hex.as_bytes().chunks(2).map(|c| digit(c[0]) << 4 | digit(c[1])).collect()
}

#[test]
fn golden_blocks_decode_bit_for_bit() {
    for line in include_str!("golden.txt").lines().filter(|l| !l.starts_with('#')) {
        let mut words = line.split(' ');
        let dtype = DType::from_name(words.next().unwrap()).unwrap();
        let x = dequantise(dtype, &from_hex(words.next().unwrap()));
        let expected: Vec<f32> = words.map(|w| w.parse().unwrap()).collect();
        assert_eq!(x, expected, "{dtype}");
    }
}

#[test]
fn encoding_loses_no_more_than_the_format_must() {
    let x = weights(256 * 40);
    for (dtype, limit) in [
        (DType::F32, 0.0),
        (DType::F16, 1e-7),
        (DType::BF16, 1e-5),
        (DType::Q8_0, 5e-5),
        (DType::Q6_K, 4e-4),
        (DType::Q5_0, 2e-3),
        (DType::Q5_1, 2e-3),
        (DType::Q5_K, 2e-3),
        (DType::Q4_0, 9e-3),
        (DType::Q4_1, 9e-3),
        (DType::Q4_K, 9e-3),
        (DType::IQ4_NL, 9e-3),
        (DType::IQ4_XS, 9e-3),
        (DType::MXFP4, 2e-2),
        (DType::Q3_K, 4e-2),
        (DType::Q2_K, 2e-1),
        (DType::Q1_0, 0.5),
        (DType::Q2_0, 1.0),
        (DType::TQ1_0, 1.0),
        (DType::TQ2_0, 1.0),
    ] {
        let error = nmse(&dequantise(dtype, &quantise(dtype, &x)), &x);
        assert!(error <= limit, "{dtype}: {error:e}");
    }
}

#[test]
fn the_three_ternary_values_come_back() {
    let x: Vec<f32> = (0..256).map(|i| [0.0, 1.5, -1.5][i * 7 % 11 % 3]).collect();
    for dtype in [DType::TQ1_0, DType::TQ2_0, DType::Q2_0] {
        assert_eq!(dequantise(dtype, &quantise(dtype, &x)), x, "{dtype}");
    }
}

#[test]
fn encoding_what_was_decoded_changes_nothing() {
    for dtype in [DType::F16, DType::BF16, DType::Q4_0, DType::Q5_0, DType::Q8_0, DType::TQ2_0] {
        let once = dequantise(dtype, &quantise(dtype, &weights(256 * 20)));
        assert_eq!(dequantise(dtype, &quantise(dtype, &once)), once, "{dtype}");
    }
}

#[test]
fn zeros_and_constants_survive_every_format() {
    for &dtype in DType::ALL.iter().filter(|&&t| can_encode(t)) {
        for v in [0.0, 1.0, -1.0, 3e-9, -1e-30] {
            let x = vec![v; 256];
            let y = dequantise(dtype, &quantise(dtype, &x));
            let close = y.iter().all(|y| (y - v).abs() <= 0.06 * v.abs().max(1e-6));
            assert!(close, "{dtype}: {v} became {}", y[0]);
        }
    }
}

#[test]
fn blocks_have_the_size_of_the_table() {
    for &dtype in DType::ALL.iter().filter(|&&t| is_supported(t)) {
        assert_eq!(dequantise(dtype, &vec![0; dtype.block_bytes()]).len(), dtype.block_elems(), "{dtype}");
    }
}

#[test]
fn one_and_two_bit_blocks_start_at_the_lowest_bit() {
    let q1_0 = dequantise(DType::Q1_0, &[&[0x00, 0x40, 0b101][..], &[0; 15]].concat()); // d = 2
    assert_eq!(q1_0[..4], [2.0, -2.0, 2.0, -2.0]);
    let q2_0 = dequantise(DType::Q2_0, &[&[0x00, 0x40, 0b11_10_01_00][..], &[0; 15]].concat());
    assert_eq!(q2_0[..5], [-2.0, 0.0, 2.0, 4.0, -2.0]);
}

#[test]
fn a_dtype_without_decoder_gives_nan() {
    assert!(!is_supported(DType::I8));
    let x = dequantise(DType::I8, &[0; 4]);
    assert!(x.len() == 4 && x.iter().all(|v| v.is_nan()));
}

#[test]
fn an_infinite_scale_is_found_in_its_block() {
    for &dtype in DType::ALL {
        let mut bytes = vec![0; 3 * dtype.block_bytes()];
        assert_eq!(find_invalid(dtype, &bytes), None, "{dtype}");
        bytes[dtype.block_bytes()..2 * dtype.block_bytes()].fill(0xff);
        let expected = (dtype.info().kind != llmrt_abi::dtype::DTypeKind::Int).then_some(1);
        assert_eq!(find_invalid(dtype, &bytes), expected, "{dtype}");
    }
}

#[test]
fn every_decoded_block_with_a_number_that_is_not_finite_is_invalid() {
    // Not F64, whose larger numbers are infinite only as f32.
    for &dtype in DType::ALL.iter().filter(|&&t| is_supported(t) && t != DType::F64) {
        // One byte at a time of an otherwise zero block: NaN or infinity must come from a scale or an element.
        for at in 0..dtype.block_bytes() {
            let mut block = vec![0; dtype.block_bytes()];
            block[at] = 0x7c;
            let finite = dequantise(dtype, &block).iter().all(|v| v.is_finite());
            assert!(finite || find_invalid(dtype, &block) == Some(0), "{dtype} byte {at}");
        }
    }
}

/// The errors of ggml's encoders without an importance matrix on half a million such numbers.
#[test]
fn encoding_bell_shaped_numbers_loses_no_more_than_ggmls_encoders_do() {
    let x = gaussians(256 * 200);
    for (dtype, ggml) in [
        (DType::Q4_0, 7.3683e-03),
        (DType::Q4_1, 6.1018e-03),
        (DType::Q5_0, 1.8244e-03),
        (DType::Q5_1, 1.4310e-03),
        (DType::Q8_0, 2.8652e-05),
        (DType::Q2_K, 8.8031e-02),
        (DType::Q3_K, 2.2689e-02),
        (DType::Q4_K, 5.0848e-03),
        (DType::Q5_K, 1.3031e-03),
        (DType::Q6_K, 3.1514e-04),
        (DType::IQ4_NL, 5.8070e-03),
        (DType::IQ4_XS, 5.8964e-03),
        (DType::MXFP4, 1.2985e-02),
        (DType::TQ1_0, 6.5095e-01),
        (DType::Q1_0, 3.6028e-01),
    ] {
        let error = nmse(&dequantise(dtype, &quantise(dtype, &x)), &x);
        assert!(error <= 1.02 * ggml, "{dtype}: {error:e}, ggml's {ggml:e}");
    }
}

/// Normally distributed numbers about 0.02 in size (Box and Muller), the same on every run.
fn gaussians(n: usize) -> Vec<f32> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut uniform = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        ((state >> 11) + 1) as f64 / (1u64 << 53) as f64
    };
    (0..n)
        .map(|_| (0.02 * (-2.0 * uniform().ln()).sqrt() * (std::f64::consts::TAU * uniform()).cos()) as f32)
        .collect()
}
