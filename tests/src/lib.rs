//! What the end-to-end tests share: the built programs, the reference fixtures, and how close is close enough.

pub mod ascend;
pub mod build;
pub mod compile;
pub mod fixtures;
pub mod models;
pub mod nvidia;
pub mod partial;
pub mod reference;
pub mod skip;
pub mod steps;

/// Normalised mean squared error: Σ(a−b)² / Σb².
pub fn nmse(got: &[f32], expected: &[f32]) -> f64 {
    assert_eq!(got.len(), expected.len(), "values");
    let square = |x: f32| f64::from(x) * f64::from(x);
    let error: f64 = got.iter().zip(expected).map(|(a, b)| square(a - b)).sum();
    error / expected.iter().map(|&b| square(b)).sum::<f64>().max(f64::MIN_POSITIVE)
}

/// Little-endian f32 values.
pub fn f32s(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|c| f32::from_le_bytes([c[0], c[1], c[2], c[3]])).collect()
}
