//! IQ1_S and IQ1_M: groups of 8 from a code book of -1, 0 and 1, moved up or down by ⅛; elements (q ± ⅛) · d·(1 + 2s).
//!
//! IQ1_S: d, 32 low bytes of index; for each 32 elements a u16: three more bits for each of four indices, s (3 bits),
//! and the direction of the move. IQ1_M: 32 low bytes of index; a nibble for each 8 elements: three more bits of index,
//! direction; four u16 of four 3-bit s (for each 16 elements) and a nibble of d each.

use super::float::{f16_to_f32, half_at};
use llmrt_abi::code_books;

const MOVE: f32 = 0.125;

pub(super) fn decode_s(block: &[u8], out: &mut Vec<f32>) {
    let d = half_at(block, 0);
    for i in 0..32 {
        let word = u16::from_le_bytes([block[34 + i / 4 * 2], block[35 + i / 4 * 2]]);
        let high = (word >> (i % 4 * 3) & 7) as usize;
        let scale = d * (1 + 2 * (word >> 12 & 7)) as f32;
        group(block[i + 2] as usize | high << 8, word & 0x8000 != 0, scale, out);
    }
}

pub(super) fn decode_m(block: &[u8], out: &mut Vec<f32>) {
    let d = f16_to_f32(scale_bits_m(block));
    for i in 0..32 {
        let nibble = block[32 + i / 2] >> (i % 2 * 4) & 15;
        let word = u16::from_le_bytes([block[48 + i / 8 * 2], block[49 + i / 8 * 2]]);
        let scale = d * (1 + 2 * (word >> (i / 2 % 4 * 3) & 7)) as f32;
        group(block[i] as usize | (nibble as usize & 7) << 8, nibble & 8 != 0, scale, out);
    }
}

/// The F16 scale of IQ1_M, spread over the upper nibbles of its last four u16.
pub(super) fn scale_bits_m(block: &[u8]) -> u16 {
    (0..4).fold(0, |bits, i| bits | (block[49 + 2 * i] as u16 >> 4) << (4 * i))
}

fn group(index: usize, down: bool, scale: f32, out: &mut Vec<f32>) {
    let by = if down { -MOVE } else { MOVE };
    out.extend((0..8).map(|i| scale * ((code_books::IQ1[index] >> (2 * i) & 3) as f32 - 1.0 + by)));
}
