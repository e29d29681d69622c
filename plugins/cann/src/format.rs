//! What the bytes of quantised blocks mean: where the bits of each number stand. Read here on the host, and on the card by
//! [`crate::ops`] from the same tables.
//!
//! A block of n numbers: y = (value - zero) · scale · d - min · dmin, with a d, and a dmin or none, per block, and scales
//! and mins for equal parts of it.

use half::f16;
use llmrt_plugin::DType;

/// Numbers of `bits` bits, from bytes beside each other, times `factor` onto numbers at equal distances.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Byte of the first.
    pub at: usize,
    /// Number of the first.
    pub to: usize,
    /// How many, and how many times that.
    pub n: [usize; 2],
    /// Bytes from one such row to the next.
    pub from: usize,
    /// Numbers between two, and between two rows.
    pub step: [usize; 2],
    /// The lowest bit.
    pub shift: u32,
    /// Bits; 8: the byte is a signed number.
    pub bits: u32,
    /// What the lowest bit is worth.
    pub factor: f32,
}

/// A format of blocks.
pub struct Format {
    /// Bytes of a block.
    pub bytes: usize,
    /// Numbers in a block.
    pub n: usize,
    /// Byte of d, an F16.
    pub d: usize,
    /// Byte of dmin, an F16, and its sign.
    pub min: Option<(usize, f32)>,
    /// Values.
    pub values: Vec<Field>,
    /// What is taken from values.
    pub zero: f32,
    /// Scales; none: 1.
    pub scales: Vec<Field>,
    /// What is taken from scales.
    pub scale_zero: f32,
    /// Mins; none: 1.
    pub mins: Vec<Field>,
    /// Parts with a scale.
    pub parts: usize,
}

/// The format of a dtype, if it is of this kind.
pub fn of(dtype: DType) -> Option<Format> {
    let format = |values, zero| Format {
        bytes: dtype.block_bytes(),
        n: 32,
        d: 0,
        min: None,
        values,
        zero,
        scales: vec![],
        scale_zero: 0.0,
        mins: vec![],
        parts: 1,
    };
    let k = |d, min: Option<usize>, values, zero| Format {
        n: 256,
        d,
        min: min.map(|at| (at, 1.0)),
        ..format(values, zero)
    };
    let added = Some((2, -1.0));
    Some(match dtype {
        DType::Q4_0 => format(nibbles(2), 8.0),
        DType::Q4_1 => Format { min: added, ..format(nibbles(4), 0.0) },
        DType::Q5_0 => format([nibbles(6), fifth_bits(2)].concat(), 16.0),
        DType::Q5_1 => Format { min: added, ..format([nibbles(8), fifth_bits(4)].concat(), 0.0) },
        DType::Q8_0 => format(vec![run(2, 0, 32, 0, 8)], 0.0),
        DType::Q2_K => Format {
            scales: vec![run(0, 0, 16, 0, 4)],
            mins: vec![run(0, 0, 16, 4, 4)],
            parts: 16,
            ..k(80, Some(82), pairs_of_bits(16, 1.0), 0.0)
        },
        DType::Q3_K => {
            let high = |i: usize| run(0, 32 * i, 32, i as u32, 1).times(4.0);
            let scale = |i: usize| run(104, 4 * i, 4, 2 * i as u32, 2).times(16.0);
            Format {
                scales: [run(96, 0, 8, 0, 4), run(96, 8, 8, 4, 4)]
                    .into_iter()
                    .chain((0..4).map(scale))
                    .collect(),
                scale_zero: 32.0,
                parts: 16,
                ..k(108, None, pairs_of_bits(32, 1.0).into_iter().chain((0..8).map(high)).collect(), 4.0)
            }
        }
        DType::Q4_K => Format {
            scales: six_bits(4),
            mins: six_bits(8),
            parts: 8,
            ..k(0, Some(2), rows_of_nibbles(16), 0.0)
        },
        DType::Q5_K => {
            let high = |i: usize| run(16, 32 * i, 32, i as u32, 1).times(16.0);
            let values = rows_of_nibbles(48).into_iter().chain((0..8).map(high)).collect();
            Format { scales: six_bits(4), mins: six_bits(8), parts: 8, ..k(0, Some(2), values, 0.0) }
        }
        DType::Q6_K => {
            let low = [run(0, 0, 64, 0, 4).twice(64, 128), run(0, 64, 64, 4, 4).twice(64, 128)];
            Format {
                scales: vec![run(192, 0, 16, 0, 8)],
                parts: 16,
                ..k(208, None, low.into_iter().chain(pairs_of_bits(128, 16.0)).collect(), 32.0)
            }
        }
        _ => return None,
    })
}

/// `n` bytes beside each other onto numbers beside each other.
fn run(at: usize, to: usize, n: usize, shift: u32, bits: u32) -> Field {
    Field { at, to, n: [n, 1], from: 0, step: [1, 0], shift, bits, factor: 1.0 }
}

impl Field {
    fn times(self, factor: f32) -> Field {
        Field { factor, ..self }
    }

    /// Once more, `from` bytes on, onto numbers `step` on.
    fn twice(self, from: usize, step: usize) -> Field {
        Field { n: [self.n[0], 2], from, step: [1, step], ..self }
    }
}

/// 16 bytes: low halves first.
fn nibbles(at: usize) -> Vec<Field> {
    vec![run(at, 0, 16, 0, 4), run(at, 16, 16, 4, 4)]
}

/// Bit i of 32 bits onto number i.
fn fifth_bits(at: usize) -> Vec<Field> {
    (0..8).map(|i| Field { step: [8, 0], ..run(at, i, 4, i as u32, 1).times(16.0) }).collect()
}

/// 128 bytes in rows of 32: low halves of a row, then its high halves.
fn rows_of_nibbles(at: usize) -> Vec<Field> {
    let rows = |to, shift| Field { n: [32, 4], from: 32, step: [1, 64], ..run(at, to, 32, shift, 4) };
    vec![rows(0, 0), rows(32, 4)]
}

/// 64 bytes in two rows of 32: pairs of bits, the lowest of a row first.
fn pairs_of_bits(at: usize, factor: f32) -> Vec<Field> {
    (0..4).map(|i| run(at, 32 * i, 32, 2 * i as u32, 2).twice(32, 128).times(factor)).collect()
}

/// Eight numbers of 6 bits: four in the low bits of bytes, four in a half of others and the rest of those.
fn six_bits(at: usize) -> Vec<Field> {
    let half = if at == 4 { 0 } else { 4 };
    vec![run(at, 0, 4, 0, 6), run(12, 4, 4, half, 4), run(at, 4, 4, 6, 2).times(16.0)]
}

/// The numbers of a block.
pub fn decode(f: &Format, block: &[u8], y: &mut [f32]) {
    let half = |at: usize| f16::from_le_bytes([block[at], block[at + 1]]).to_f32();
    let (d, min) = (half(f.d), f.min.map_or(0.0, |(at, sign)| sign * half(at)));
    let (mut scales, mut mins) = ([0.0; 16], [0.0; 16]);
    y.fill(0.0);
    f.values.iter().for_each(|field| add(field, block, y));
    f.scales.iter().for_each(|field| add(field, block, &mut scales));
    f.mins.iter().for_each(|field| add(field, block, &mut mins));
    for (i, part) in y.chunks_exact_mut(f.n / f.parts).enumerate() {
        let scale = if f.scales.is_empty() { d } else { d * (scales[i] - f.scale_zero) };
        let below = if f.mins.is_empty() { min } else { min * mins[i] };
        part.iter_mut().for_each(|y| *y = (*y - f.zero) * scale - below);
    }
}

fn add(f: &Field, block: &[u8], y: &mut [f32]) {
    let mask = if f.bits == 8 { 255 } else { (1u8 << f.bits) - 1 };
    let number = |byte: u8| match f.bits {
        8 => f32::from(byte as i8),
        _ => f32::from(byte >> f.shift & mask) * f.factor,
    };
    for j in 0..f.n[1] {
        let bytes = &block[f.at + j * f.from..][..f.n[0]];
        let y = &mut y[f.to + j * f.step[1]..];
        match f.step[0] {
            1 => y.iter_mut().zip(bytes).for_each(|(y, byte)| *y += number(*byte)),
            step => y.iter_mut().step_by(step).zip(bytes).for_each(|(y, byte)| *y += number(*byte)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_decode_as_in_the_host() {
        for dtype in DType::ALL.iter().copied() {
            let Some(f) = of(dtype) else { continue };
            let mut seed = 7u32;
            for _ in 0..100 {
                let byte = |_| {
                    seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    (seed >> 24) as u8
                };
                let mut block: Vec<u8> = (0..f.bytes).map(byte).collect();
                // Not infinite, not NaN.
                for at in [Some(f.d), f.min.map(|min| min.0)].into_iter().flatten() {
                    block[at + 1] &= 0xbb;
                }
                let mut y = vec![0.0; f.n];
                decode(&f, &block, &mut y);
                let expected = llmrt_graph::quant::dequantise(dtype, &block);
                let close = y.iter().zip(&expected).all(|(y, e)| (y - e).abs() <= 1e-6 * e.abs().max(1e-3));
                assert!(close, "{dtype}: {y:?}\n{expected:?}");
            }
        }
    }
}
