//! IQ3_XXS and IQ3_S: groups of 4 magnitudes from a code book, signs apart.
//!
//! IQ3_XXS: 64 bytes of index; for each 32 elements a u32 of four 7-bit sign words and s in its upper four bits;
//! elements ±level · d·(s + ½)/2. IQ3_S: 64 low bytes of index, 64 ninth bits, 32 sign bytes, a nibble of s for each
//! 32 elements; elements ±level · d·(1 + 2s).

use super::float::half_at;
use super::iq2::{sign, with_parity};
use llmrt_abi::code_books;

/// Magnitudes in the code book of IQ3_XXS; those of IQ3_S are the odd numbers 1 to 15.
const LEVELS: [u8; 8] = [4, 12, 20, 28, 36, 44, 52, 62];

pub(super) fn decode_xxs(block: &[u8], out: &mut Vec<f32>) {
    let d = half_at(block, 0);
    for (indices, word) in block[2..66].chunks_exact(8).zip(block[66..98].chunks_exact(4)) {
        let word = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
        let scale = d * (0.5 + (word >> 28) as f32) * 0.5;
        out.extend((0..32).map(|i| {
            let signs = with_parity((word >> (i / 8 * 7) & 127) as u8);
            let level = LEVELS[level_at(code_books::IQ3_XXS[indices[i / 4] as usize], i)] as f32;
            scale * level * sign(signs, i % 8)
        }));
    }
}

pub(super) fn decode_s(block: &[u8], out: &mut Vec<f32>) {
    let d = half_at(block, 0);
    out.extend((0..256).map(|i| {
        let s = block[106 + i / 64] >> (i / 32 % 2 * 4) & 15;
        let ninth = (block[66 + i / 32] >> (i / 4 % 8) & 1) as usize;
        let index = block[2 + i / 4] as usize | ninth << 8;
        let level = (2 * level_at(code_books::IQ3_S[index], i) + 1) as f32;
        d * (1 + 2 * s) as f32 * level * sign(block[74 + i / 8], i % 8)
    }));
}

/// Level number of element i in its group's entry.
fn level_at(entry: u16, i: usize) -> usize {
    (entry >> (i % 4 * 3) & 7) as usize
}
