//! Formats whose elements stand in code books: IQ1, IQ2 and IQ3. An entry names the levels of four or eight elements;
//! signs stand apart, but for IQ1. One block of 256 elements at a time.

use super::plain::half;
use crate::simd::f16_to_f32;
use llmrt_abi::code_books;

/// Magnitudes of IQ2.
const IQ2_LEVELS: [f32; 4] = [8.0, 25.0, 43.0, 0.0];
/// Magnitudes of IQ3_XXS.
const IQ3_XXS_LEVELS: [f32; 8] = [4.0, 12.0, 20.0, 28.0, 36.0, 44.0, 52.0, 62.0];
/// Magnitudes of IQ3_S.
const IQ3_S_LEVELS: [f32; 8] = [1.0, 3.0, 5.0, 7.0, 9.0, 11.0, 13.0, 15.0];

/// d F16, 32 low bytes of index; for each 32 elements a u16: four times three upper bits of index, scale, direction.
pub fn iq1_s(block: &[u8], out: &mut [f32]) {
    let d = half(block, 0);
    for (i, out) in out.chunks_exact_mut(8).enumerate() {
        let word = word(block, 34 + i / 4 * 2);
        let index = block[2 + i] as usize | (word as usize >> (i % 4 * 3) & 7) << 8;
        ternary(index, word >> 15 == 1, d * (1 + 2 * (word >> 12 & 7)) as f32, out);
    }
}

/// 32 low bytes of index; a nibble of three upper bits and direction for each 8 elements; four u16 of four scales and a
/// nibble of d.
pub fn iq1_m(block: &[u8], out: &mut [f32]) {
    let words = [48, 50, 52, 54].map(|at| word(block, at));
    let d = words.iter().rev().fold(0, |bits, word| bits << 4 | word >> 12);
    let d = f16_to_f32(d);
    for (i, out) in out.chunks_exact_mut(8).enumerate() {
        let nibble = block[32 + i / 2] >> (i % 2 * 4) & 15;
        let scale = words[i / 8] >> (i / 2 % 4 * 3) & 7;
        let index = block[i] as usize | (nibble as usize & 7) << 8;
        ternary(index, nibble & 8 != 0, d * (1 + 2 * scale) as f32, out);
    }
}

/// -1, 0 or 1, an eighth up or down.
fn ternary(index: usize, down: bool, scale: f32, out: &mut [f32]) {
    let entry = code_books::IQ1[index & 2047];
    let zero = if down { 1.125 } else { 0.875 };
    for (i, out) in out.iter_mut().enumerate() {
        *out = scale * ((entry >> (2 * i) & 3) as f32 - zero);
    }
}

/// d F16; for each 32 elements four bytes of index, then four times seven signs and a scale in a u32.
pub fn iq2_xxs(block: &[u8], out: &mut [f32]) {
    let d = half(block, 0);
    for (part, out) in block[2..].chunks_exact(8).zip(out.chunks_exact_mut(32)) {
        let word = long(part, 4);
        let scale = d * (0.5 + (word >> 28) as f32) * 0.25;
        for (i, out) in out.chunks_exact_mut(8).enumerate() {
            let entry = code_books::IQ2_XXS[part[i] as usize];
            signed::<8, 2>(entry, &IQ2_LEVELS, eighth(word >> (7 * i)), scale, out);
        }
    }
}

/// d F16; for each 8 elements nine bits of index and seven signs; a nibble of scale for each 16.
pub fn iq2_xs(block: &[u8], out: &mut [f32]) {
    let d = half(block, 0);
    for (i, out) in out.chunks_exact_mut(8).enumerate() {
        let word = word(block, 2 + 2 * i);
        let entry = code_books::IQ2_XS[word as usize & 511];
        signed::<8, 2>(entry, &IQ2_LEVELS, eighth(word as u32 >> 9), sixteenth(d, block[66 + i / 4], i), out);
    }
}

/// d F16, 32 low bytes of index, 32 of signs, two upper bits of index for each 8 elements, a nibble of scale for each 16.
pub fn iq2_s(block: &[u8], out: &mut [f32]) {
    let d = half(block, 0);
    for (i, out) in out.chunks_exact_mut(8).enumerate() {
        let high = block[66 + i / 4] as usize >> (i % 4 * 2) & 3;
        let entry = code_books::IQ2_S[block[2 + i] as usize | high << 8];
        signed::<8, 2>(entry, &IQ2_LEVELS, block[34 + i], sixteenth(d, block[74 + i / 4], i), out);
    }
}

/// d F16, 64 bytes of index; for each 32 elements four times seven signs and a scale in a u32.
pub fn iq3_xxs(block: &[u8], out: &mut [f32]) {
    let d = half(block, 0);
    for (i, out) in out.chunks_exact_mut(4).enumerate() {
        let word = long(block, 66 + i / 8 * 4);
        let signs = eighth(word >> (i % 8 / 2 * 7)) >> (i % 2 * 4);
        let scale = d * (0.5 + (word >> 28) as f32) * 0.5;
        let entry = code_books::IQ3_XXS[block[2 + i] as usize];
        signed::<4, 3>(entry, &IQ3_XXS_LEVELS, signs, scale, out);
    }
}

/// d F16, 64 low bytes of index, 64 ninth bits, 32 bytes of signs, a nibble of scale for each 32 elements.
pub fn iq3_s(block: &[u8], out: &mut [f32]) {
    let d = half(block, 0);
    for (i, out) in out.chunks_exact_mut(4).enumerate() {
        let ninth = block[66 + i / 8] as usize >> (i % 8) & 1;
        let entry = code_books::IQ3_S[block[2 + i] as usize | ninth << 8];
        let signs = block[74 + i / 2] >> (i % 2 * 4);
        let scale = block[106 + i / 16] >> (i / 8 % 2 * 4) & 15;
        signed::<4, 3>(entry, &IQ3_S_LEVELS, signs, d * (1 + 2 * scale) as f32, out);
    }
}

/// `N` elements of `BITS` bits of level each.
#[inline(always)]
fn signed<const N: usize, const BITS: usize>(
    entry: u16,
    levels: &[f32],
    signs: u8,
    scale: f32,
    out: &mut [f32],
) {
    for (i, out) in out[..N].iter_mut().enumerate() {
        let level = scale * levels[(entry >> (BITS * i)) as usize & ((1 << BITS) - 1)];
        *out = if signs >> i & 1 == 1 { -level } else { level };
    }
}

/// Seven signs and the eighth that makes the number of minuses even.
fn eighth(seven: u32) -> u8 {
    let seven = seven as u8 & 127;
    seven | (seven.count_ones() as u8 & 1) << 7
}

/// Scale of group i of 8 elements, whose byte of nibbles is given.
fn sixteenth(d: f32, nibbles: u8, i: usize) -> f32 {
    d * (0.5 + (nibbles >> (i / 2 % 2 * 4) & 15) as f32) * 0.25
}

fn word(block: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([block[at], block[at + 1]])
}

fn long(block: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]])
}
