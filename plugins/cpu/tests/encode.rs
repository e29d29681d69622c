//! Encoders give the bytes of the reference's, on every instruction set.

use llmrt_abi::DType;
use llmrt_cpu::quant::encode;
use llmrt_cpu::simd::Isa;
use llmrt_graph::quant;

/// Numbers of some shape: bell-shaped, of one sign, with an outlier, tiny, zeros, constants.
fn rows() -> Vec<Vec<f32>> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut uniform = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 24) as f32 - 0.5
    };
    let mut bell =
        |n: usize| (0..n).map(|_| (0..6).map(|_| uniform()).sum::<f32>() * 0.1).collect::<Vec<_>>();
    let mut outlier = bell(512);
    outlier[77] = 9.0;
    outlier[300] = -14.0;
    vec![
        bell(256 * 12),
        bell(256).iter().map(|v| v.abs()).collect(),
        bell(256).iter().map(|v| -v.abs() - 1.0).collect(),
        outlier,
        bell(256).iter().map(|v| v * 1e-18).collect(),
        bell(256).iter().map(|v| v * 3e-7).collect(),
        bell(256).iter().map(|v| v * 1e4).collect(),
        vec![0.0; 256],
        vec![1.5; 256],
        vec![-0.25; 256],
        (0..256).map(|i| i as f32 / 16.0 - 8.0).collect(),
    ]
}

#[test]
fn every_format_that_the_reference_encodes_has_the_same_bytes_here() {
    let formats = DType::ALL.iter().copied().filter(|t| t.is_quantised() && quant::can_encode(*t));
    let mut n = 0;
    for dtype in formats {
        assert!(encode::is_supported(dtype), "{dtype}");
        for isa in Isa::available() {
            for (i, x) in rows().iter().enumerate() {
                n += 1;
                let expected = quant::quantise(dtype, x);
                let mut found = vec![0xa5; expected.len()];
                encode::encode(isa, dtype, x, &mut found);
                let at = found.iter().zip(&expected).position(|(a, b)| a != b);
                let block = at.map(|at| (at / dtype.block_bytes(), at % dtype.block_bytes()));
                assert_eq!(block, None, "{dtype}, {}, row {i}: block and byte", isa.name());
            }
        }
    }
    assert!(n > 300, "{n}");
}
