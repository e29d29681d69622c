//! Random weights of any type, fast: rows are cut out of one long stretch of random numbers.

use super::shape::{Content, Part};
use llmrt_abi::DType;
use llmrt_gguf::TensorShape;
use llmrt_graph::quant;
use std::collections::HashMap;
use std::io::{self, Write};

/// Numbers in the stretch. Many more than a row has, so that rows differ; few enough to be encoded in a moment.
const N: usize = 1 << 21;

/// Rows begin at multiples of this: the largest block of a type.
const STEP: usize = 256;

/// A source of rows. The same seed gives the same numbers in every type, but for the type's rounding.
pub struct Numbers {
    /// Nearly normal, of deviation 1.
    stretch: Vec<f32>,
    /// The stretch in a type, times a deviation, plus a mean.
    encoded: HashMap<(DType, [u32; 2]), Vec<u8>>,
    state: u64,
    n_threads: usize,
}

impl Numbers {
    /// The source with this seed; encoding uses so many threads.
    pub fn new(seed: u64, n_threads: usize) -> Numbers {
        let mut state = seed;
        // The sum of four even numbers in -1/2..1/2 has a variance of 1/3.
        let normal = |bits: u64| {
            let quarters = [0, 16, 32, 48].map(|at| (bits >> at & 0xFFFF) as f32 / 65536.0 - 0.5);
            quarters.iter().sum::<f32>() * 3f32.sqrt()
        };
        let stretch = (0..N).map(|_| normal(next(&mut state))).collect();
        Numbers { stretch, encoded: HashMap::new(), state, n_threads: n_threads.max(1) }
    }

    /// The bytes of a tensor.
    pub fn write(&mut self, part: &Part, tensor: &TensorShape, out: &mut dyn Write) -> io::Result<()> {
        let normal = match part.content {
            Content::Given(ref values) => return out.write_all(&quant::quantise(tensor.dtype, values)),
            Content::Random { mean, deviation } => [mean, deviation],
        };
        let [n, rows @ ..] = tensor.ne;
        let row_bytes = tensor.dtype.row_bytes(n).unwrap_or(0) as usize;
        let step_bytes = tensor.dtype.row_bytes(STEP as u64).unwrap_or(0) as usize;
        let n_starts = ((N.saturating_sub(n as usize)) / STEP + 1) as u64;
        let key = (tensor.dtype, normal.map(f32::to_bits));
        let (stretch, n_threads) = (&self.stretch, self.n_threads);
        let encoded =
            self.encoded.entry(key).or_insert_with(|| encode(stretch, normal, tensor.dtype, n_threads));
        for row in 0..rows.iter().product() {
            if row % 1024 == 0 && crate::interrupt::is_requested() {
                return Err(io::Error::other("interrupted"));
            }
            let start = (next(&mut self.state) % n_starts) as usize * step_bytes;
            out.write_all(encoded.get(start..start + row_bytes).unwrap_or_default())?;
        }
        Ok(())
    }
}

/// All numbers with this mean and deviation, in a type; pieces on threads side by side.
fn encode(stretch: &[f32], [mean, deviation]: [f32; 2], dtype: DType, n_threads: usize) -> Vec<u8> {
    let piece = stretch.len().div_ceil(n_threads).next_multiple_of(STEP);
    let encode = |part: &[f32]| {
        let scaled: Vec<f32> = part.iter().map(|x| x * deviation + mean).collect();
        quant::quantise(dtype, &scaled)
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = stretch.chunks(piece).map(|part| scope.spawn(move || encode(part))).collect();
        threads.into_iter().flat_map(|t| t.join().unwrap_or_default()).collect()
    })
}

/// The next 64 random bits (splitmix64).
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_requested_deviation_in_every_type() {
        for dtype in [DType::F32, DType::F16, DType::Q4_0, DType::Q4_K, DType::Q6_K] {
            let stretch = Numbers::new(1, 2).stretch;
            let x = quant::dequantise(dtype, &encode(&stretch[..1 << 16], [0.0, 0.02], dtype, 3));
            let mean = x.iter().map(|&x| f64::from(x)).sum::<f64>() / x.len() as f64;
            let square = x.iter().map(|&x| f64::from(x * x)).sum::<f64>() / x.len() as f64;
            assert!(mean.abs() < 1e-3, "{dtype}: mean {mean}");
            assert!((square.sqrt() / 0.02 - 1.0).abs() < 0.02, "{dtype}: deviation {}", square.sqrt());
        }
    }
}
