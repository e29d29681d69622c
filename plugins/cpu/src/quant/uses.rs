//! Which elements of a block each of its bytes is a part of: what has a part in none that counts need not be read.

use super::decode;
use crate::simd::Isa;
use llmrt_plugin::DType;
use std::sync::{Mutex, PoisonError};

/// Elements of a block: bit i % 32 of word i / 32 is that of element i.
pub type Elements = [u32; 8];

/// Of each byte of a block of a quantised dtype, the elements that it is a part of. Found out by decoding, once.
pub fn of(dtype: DType) -> &'static [Elements] {
    static KNOWN: Mutex<Vec<(DType, &'static [Elements])>> = Mutex::new(Vec::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, uses)) = known.iter().find(|(of, _)| *of == dtype) {
        return uses;
    }
    // Kept for ever: a few kilobytes for each of the formats.
    let uses: &[Elements] = Box::leak(found(dtype).into_boxed_slice());
    known.push((dtype, uses));
    uses
}

/// Whether one of these elements is among those.
#[inline(always)]
pub fn overlap(a: &Elements, b: &Elements) -> bool {
    a.iter().zip(b).fold(0, |any, (a, b)| any | (a & b)) != 0
}

fn found(dtype: DType) -> Vec<Elements> {
    /// Some have scales that hide what the other bytes do.
    const BLOCKS: u32 = 24;
    let (n_bytes, n_elems) = (dtype.block_bytes(), dtype.block_elems());
    let decoded = |block: &[u8]| {
        let mut out = vec![0.0; n_elems];
        decode::decode(Isa::SCALAR, dtype, block, &mut out);
        out
    };
    let mut uses = vec![[0; 8]; n_bytes];
    let mut state = 1u32;
    for _ in 0..BLOCKS {
        let mut block: Vec<u8> = (0..n_bytes).map(|_| next(&mut state)).collect();
        let before = decoded(&block);
        for (byte, uses) in uses.iter_mut().enumerate() {
            block[byte] ^= 0xff;
            for (i, (a, b)) in before.iter().zip(decoded(&block)).enumerate() {
                uses[i / 32] |= u32::from(a.to_bits() != b.to_bits()) << (i % 32);
            }
            block[byte] ^= 0xff;
        }
    }
    uses
}

/// Bytes without a pattern, the same each time.
fn next(state: &mut u32) -> u8 {
    *state = state.wrapping_mul(1664525).wrapping_add(1013904223);
    (*state >> 24) as u8
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quant::is_supported;

    #[test]
    fn scales_are_parts_of_all_and_other_bytes_of_a_few() {
        let count = |uses: &Elements| uses.iter().map(|word| word.count_ones()).sum::<u32>();
        let counts = |dtype| of(dtype).iter().map(count).collect::<Vec<_>>();
        assert_eq!(counts(DType::Q4_0), [vec![32; 2], vec![2; 16]].concat());
        assert_eq!(counts(DType::Q8_0), [vec![32; 2], vec![1; 32]].concat());
        assert_eq!(counts(DType::Q5_0), [vec![32; 2], vec![8; 4], vec![2; 16]].concat());
        assert_eq!(counts(DType::Q6_K), [vec![2; 128], vec![4; 64], vec![16; 16], vec![256; 2]].concat());
        assert_eq!(of(DType::Q4_0)[2], [1 << 16 | 1, 0, 0, 0, 0, 0, 0, 0]);
    }

    /// Bytes that are parts of none of these elements may be anything.
    #[test]
    fn what_an_element_is_made_of_is_known() {
        let mut state = 7;
        for &dtype in DType::ALL.iter().filter(|dtype| is_supported(**dtype)) {
            let n = dtype.block_elems();
            for i in 0..2 * n {
                let mut block: Vec<u8> = (0..dtype.block_bytes()).map(|_| next(&mut state)).collect();
                let mut decoded = [vec![0.0; n], vec![0.0; n]];
                decode::decode(Isa::SCALAR, dtype, &block, &mut decoded[0]);
                let mut element = [0; 8];
                element[i % n / 32] = 1 << (i % 32);
                for (byte, uses) in block.iter_mut().zip(of(dtype)) {
                    *byte = if overlap(uses, &element) { *byte } else { next(&mut state) };
                }
                decode::decode(Isa::SCALAR, dtype, &block, &mut decoded[1]);
                let [before, after] = decoded.map(|all| all[i % n].to_bits());
                assert_eq!(before, after, "{dtype}, element {}", i % n);
            }
        }
    }
}
