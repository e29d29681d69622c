//! IQ2_XXS, IQ2_XS and IQ2_S: groups of 8 magnitudes from a code book, signs apart; elements ±level · d·(s + ½)/4.
//!
//! IQ2_XXS, for each 32 elements: four bytes of index, a u32 of four 7-bit sign words and s in its upper four bits.
//! IQ2_XS: for each 8 a u16 of index (9 bits) and sign word (7); then a nibble of s for each 16. IQ2_S: low bytes of
//! the indices, sign bytes, two more bits of index for each 8, a nibble of s for each 16.

use super::float::half_at;
use llmrt_abi::code_books;

/// Magnitudes in the code books.
const LEVELS: [u8; 3] = [8, 25, 43];

pub(super) fn decode_xxs(block: &[u8], out: &mut Vec<f32>) {
    let d = half_at(block, 0);
    for part in block[2..66].chunks_exact(8) {
        let word = u32::from_le_bytes([part[4], part[5], part[6], part[7]]);
        let scale = d * (0.5 + (word >> 28) as f32) * 0.25;
        for (i, &index) in part[..4].iter().enumerate() {
            let signs = with_parity((word >> (7 * i) & 127) as u8);
            group(code_books::IQ2_XXS[index as usize], signs, scale, out);
        }
    }
}

pub(super) fn decode_xs(block: &[u8], out: &mut Vec<f32>) {
    let d = half_at(block, 0);
    for (i, q) in block[2..66].chunks_exact(2).enumerate() {
        let q = u16::from_le_bytes([q[0], q[1]]);
        let signs = with_parity((q >> 9) as u8);
        group(code_books::IQ2_XS[(q & 511) as usize], signs, sixteenth_scale(d, &block[66..74], i), out);
    }
}

pub(super) fn decode_s(block: &[u8], out: &mut Vec<f32>) {
    let d = half_at(block, 0);
    for i in 0..32 {
        let high = (block[66 + i / 4] >> (i % 4 * 2) & 3) as usize;
        let index = block[2 + i] as usize | high << 8;
        group(code_books::IQ2_S[index], block[34 + i], sixteenth_scale(d, &block[74..82], i), out);
    }
}

/// Scale of group i: the nibble of its 16 elements.
fn sixteenth_scale(d: f32, nibbles: &[u8], i: usize) -> f32 {
    let s = nibbles[i / 4] >> (i / 2 % 2 * 4) & 15;
    d * (0.5 + s as f32) * 0.25
}

fn group(entry: u16, signs: u8, scale: f32, out: &mut Vec<f32>) {
    out.extend((0..8).map(|i| {
        let level = LEVELS[(entry >> (2 * i) & 3) as usize] as f32;
        scale * level * sign(signs, i)
    }));
}

/// Seven signs and the eighth that makes the number of minuses even.
pub(super) fn with_parity(seven: u8) -> u8 {
    seven | (seven.count_ones() as u8 & 1) << 7
}

/// -1 where bit i is set.
pub(super) fn sign(signs: u8, i: usize) -> f32 {
    if signs >> i & 1 == 1 { -1.0 } else { 1.0 }
}
