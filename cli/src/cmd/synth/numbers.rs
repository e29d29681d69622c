//! Random weights of any type, fast: rows are cut out of one long stretch of random numbers.

use super::rare::{N_CONSTANT, Rarity};
use super::shape::{Channels, Content, Part};
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
    rarity: Rarity,
}

impl Numbers {
    /// The source with this seed; encoding uses so many threads.
    pub fn new(seed: u64, n_threads: usize, rarity: Rarity) -> Numbers {
        let mut state = seed;
        // The sum of four even numbers in -1/2..1/2 has a variance of 1/3.
        let normal = |bits: u64| {
            let quarters = [0, 16, 32, 48].map(|at| (bits >> at & 0xFFFF) as f32 / 65536.0 - 0.5);
            quarters.iter().sum::<f32>() * 3f32.sqrt()
        };
        let stretch = (0..N).map(|_| normal(next(&mut state))).collect();
        Numbers { stretch, encoded: HashMap::new(), state, n_threads: n_threads.max(1), rarity }
    }

    /// The bytes of a tensor.
    pub fn write(&mut self, part: &Part, tensor: &TensorShape, out: &mut dyn Write) -> io::Result<()> {
        let (normal, channels) = match part.content {
            Content::Given(ref values) => return out.write_all(&quant::quantise(tensor.dtype, values)),
            Content::Random { mean, deviation, channels } => ([mean, deviation], channels),
        };
        let [n, rows @ ..] = tensor.ne;
        let n_rows: u64 = rows.iter().product();
        let first = self.first_channels(channels, normal[1], n, n_rows);
        let row_bytes = tensor.dtype.row_bytes(n).unwrap_or(0) as usize;
        let step_bytes = tensor.dtype.row_bytes(STEP as u64).unwrap_or(0) as usize;
        let n_starts = ((N.saturating_sub(n as usize)) / STEP + 1) as u64;
        let key = (tensor.dtype, normal.map(f32::to_bits));
        let (stretch, n_threads) = (&self.stretch, self.n_threads);
        let encoded =
            self.encoded.entry(key).or_insert_with(|| encode(stretch, normal, tensor.dtype, n_threads));
        for row in 0..n_rows {
            if row % 1024 == 0 && crate::interrupt::is_requested() {
                return Err(io::Error::other("interrupted"));
            }
            let start = (next(&mut self.state) % n_starts) as usize * step_bytes;
            let bytes = encoded.get(start..start + row_bytes).unwrap_or_default();
            match first.get(row as usize) {
                None => out.write_all(bytes)?,
                Some(&Some(value)) => out.write_all(&with_first(value, tensor.dtype, bytes))?,
                Some(None) => out.write_all(&vec![0; row_bytes])?,
            }
        }
        Ok(())
    }

    /// The value of the first channels in each row, as far as rows have one; `None`: the row is zeros.
    fn first_channels(
        &mut self,
        channels: Channels,
        deviation: f32,
        n: u64,
        n_rows: u64,
    ) -> Vec<Option<f32>> {
        match channels {
            Channels::Random => Vec::new(),
            Channels::Constant => vec![Some(deviation); n_rows as usize],
            Channels::Unmoved => vec![None; N_CONSTANT.min(n_rows as usize)],
            Channels::Rare => {
                let mut means = self.rarity.means(n_rows as usize);
                for i in (1..means.len()).rev() {
                    means.swap(i, (next(&mut self.state) % (i as u64 + 1)) as usize);
                }
                let others = n.saturating_sub(N_CONSTANT as u64) as f64;
                let scale = f64::from(deviation) * others.sqrt() / N_CONSTANT as f64;
                means.into_iter().map(|mean| Some((mean * scale) as f32)).collect()
            }
        }
    }
}

/// A row whose first channels have this value: the blocks that they are in are encoded again.
fn with_first(value: f32, dtype: DType, row: &[u8]) -> Vec<u8> {
    let n_bytes =
        dtype.row_bytes(N_CONSTANT.next_multiple_of(dtype.block_elems()) as u64).unwrap_or(0) as usize;
    let (blocks, rest) = row.split_at(n_bytes.min(row.len()));
    let mut numbers = quant::dequantise(dtype, blocks);
    numbers.iter_mut().take(N_CONSTANT).for_each(|number| *number = value);
    [&quant::quantise(dtype, &numbers), rest].concat()
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
    use crate::cmd::synth::Shape;

    #[test]
    fn numbers_have_the_requested_deviation_in_every_type() {
        for dtype in [DType::F32, DType::F16, DType::Q4_0, DType::Q4_K, DType::Q6_K] {
            let stretch = Numbers::new(1, 2, Rarity { zeros: 0.9, hot: 0.26 }).stretch;
            let x = quant::dequantise(dtype, &encode(&stretch[..1 << 16], [0.0, 0.02], dtype, 3));
            let mean = x.iter().map(|&x| f64::from(x)).sum::<f64>() / x.len() as f64;
            let square = x.iter().map(|&x| f64::from(x * x)).sum::<f64>() / x.len() as f64;
            assert!(mean.abs() < 1e-3, "{dtype}: mean {mean}");
            assert!((square.sqrt() / 0.02 - 1.0).abs() < 0.02, "{dtype}: deviation {}", square.sqrt());
        }
    }

    /// Gates of hidden states whose first channels are 1 and whose others are normal.
    #[test]
    fn as_many_gates_are_negative_as_requested_in_every_type() {
        for dtype in [DType::F16, DType::Q4_0, DType::Q8_0, DType::Q4_K] {
            for zeros in [0.67, 0.9] {
                let mut numbers = Numbers::new(3, 2, Rarity { zeros, hot: 0.26 });
                let model = "relu-llama-3.2-1b".parse::<Shape>().unwrap().model(Some(1)).unwrap();
                let parts = model.parts(16);
                let (part, shape) = parts
                    .iter()
                    .map(|part| (part, part.shape().unwrap()))
                    .find(|(_, shape)| shape.name == "blk.0.ffn_gate.weight")
                    .unwrap();
                let mut bytes = Vec::new();
                numbers.write(part, &TensorShape { dtype, ..shape }, &mut bytes).unwrap();
                let gates = quant::dequantise(dtype, &bytes);
                let (mut n_zeros, mut n) = (0, 0);
                for token in 0..3 {
                    let mut x = numbers.stretch[token * 4096..][..2048].to_vec();
                    x[..N_CONSTANT].fill(1.0);
                    for gate in gates.chunks_exact(2048) {
                        n += 1;
                        n_zeros += usize::from(gate.iter().zip(&x).map(|(a, b)| a * b).sum::<f32>() <= 0.0);
                    }
                }
                let found = n_zeros as f64 / n as f64;
                assert!((found - zeros).abs() < 0.02, "{dtype}: {found} of {zeros}");
            }
        }
    }
}
