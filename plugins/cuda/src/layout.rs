//! How weights are laid out on a device after `seal`, and back. Blocks of Q4_0 and Q8_0 begin at any even address, which
//! forces loads of 2 bytes. Eight of them, in their place and with as many bytes, become their eight scales, 16 bytes, and
//! then their numbers, so that a kernel reads 16 bytes at once. Rows stay where they are, and can be taken by themselves.
//!
//! Numbers of Q4_0 become two's complement: 16 times a number is then its four bits as the upper ones of a byte.

use llmrt_plugin::abi::types::*;
use llmrt_plugin::{DType, Layout, TensorView};

/// The number of this layout.
pub const EIGHTS: u32 = 1;
/// What kernels add to the number of a dtype in this layout (kernels/quant.cuh).
const KERNELS_ADD: u32 = 64;
/// Blocks that become one.
const BLOCKS: usize = 8;
/// Bytes of a scale, the first of a block.
const SCALE: usize = 2;

/// The layout a weight gets at `seal`: the file's unless rows are whole eights.
pub fn of_weight(t: &TensorView<'_>) -> Layout {
    let is_matrix = matches!(t.role(), ROLE_MATRIX | ROLE_EXPERTS | ROLE_EMBEDDING);
    let is_weight = is_matrix && t.flags() & TENSOR_WEIGHT != 0 && t.is_contiguous();
    let canonical = Layout::canonical(t.nbytes());
    match t.dtype() {
        Some(dtype) if is_weight && t.offset().is_multiple_of(16) && are_eights(dtype, t.ne()[0]) => {
            Layout { id: EIGHTS, name: "scales of eight blocks, then their numbers", ..canonical }
        }
        _ => canonical,
    }
}

/// Whether a dtype has this layout, for rows of so many numbers.
pub fn are_eights(dtype: DType, row: usize) -> bool {
    matches!(dtype, DType::Q4_0 | DType::Q8_0) && row.is_multiple_of(BLOCKS * dtype.block_elems())
}

/// The number of a dtype and layout that kernels get.
pub fn kernel_type(t: &TensorView<'_>) -> u32 {
    t.dtype_id() + t.layout_id() * KERNELS_ADD
}

/// Bytes of eight blocks.
pub fn eight_bytes(dtype: DType) -> usize {
    BLOCKS * dtype.block_bytes()
}

/// Whole eights, as they are in the file, into this layout.
pub fn transform(dtype: DType, bytes: &mut [u8]) {
    let n = dtype.block_bytes();
    for eight in bytes.chunks_exact_mut(eight_bytes(dtype)) {
        let blocks = eight.to_vec();
        let (scales, numbers) = eight.split_at_mut(BLOCKS * SCALE);
        for (i, block) in blocks.chunks_exact(n).enumerate() {
            scales[i * SCALE..][..SCALE].copy_from_slice(&block[..SCALE]);
            let to = &mut numbers[i * (n - SCALE)..][..n - SCALE];
            to.iter_mut().zip(&block[SCALE..]).for_each(|(to, from)| *to = turned(dtype, *from));
        }
    }
}

/// The inverse of [`transform`].
pub fn restore(dtype: DType, bytes: &mut [u8]) {
    let n = dtype.block_bytes();
    for eight in bytes.chunks_exact_mut(eight_bytes(dtype)) {
        let stored = eight.to_vec();
        let (scales, numbers) = stored.split_at(BLOCKS * SCALE);
        for (i, block) in eight.chunks_exact_mut(n).enumerate() {
            block[..SCALE].copy_from_slice(&scales[i * SCALE..][..SCALE]);
            let from = &numbers[i * (n - SCALE)..][..n - SCALE];
            block[SCALE..].iter_mut().zip(from).for_each(|(to, from)| *to = turned(dtype, *from));
        }
    }
}

/// Q4_0 has numbers plus eight in the file: the upper bit of each is the other way around in two's complement.
fn turned(dtype: DType, byte: u8) -> u8 {
    if dtype == DType::Q4_0 { byte ^ 0x88 } else { byte }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eights_have_their_scales_first_and_come_back() {
        for dtype in [DType::Q4_0, DType::Q8_0] {
            let file: Vec<u8> = (0..3 * eight_bytes(dtype)).map(|i| (i * 37 + i / 11) as u8).collect();
            let mut stored = file.clone();
            transform(dtype, &mut stored);
            let (n, eight) = (dtype.block_bytes(), eight_bytes(dtype));
            assert_eq!(
                stored[eight + 2 * 5..][..2],
                file[eight + 5 * n..][..2],
                "{dtype}: the scale of block 5"
            );
            let number = stored[eight + 16 + 5 * (n - 2) + 3];
            assert_eq!(turned(dtype, number), file[eight + 5 * n + 2 + 3], "{dtype}: byte 3 of block 5");
            restore(dtype, &mut stored);
            assert_eq!(stored, file, "{dtype}");
        }
    }

    /// 0xf0: 15 - 8 in the upper bits, 0 - 8 in the lower.
    #[test]
    fn nibbles_become_signed() {
        assert_eq!(turned(DType::Q4_0, 0xf0), 0x78);
        assert_eq!(turned(DType::Q8_0, 0xf0), 0xf0);
    }
}
