//! Q8_K: blocks of 256 i8 with an f32 scale; what K formats are multiplied with, never found in files.
//!
//! Bytes: d, 256 of q, 16 i16 sums of 16 q each (not needed to decode).

pub(super) fn decode(block: &[u8], out: &mut Vec<f32>) {
    let d = f32::from_le_bytes([block[0], block[1], block[2], block[3]]);
    out.extend(block[4..260].iter().map(|&q| q as i8 as f32 * d));
}
