//! How quantised weights are laid out on a card: all values of the tensor first, row after row, then all scales.
//!
//! Formats with mins, or with parts of 16, have no product on the card: their numbers are kept as F16, each off by at most
//! 2⁻¹¹ of itself, followed by the file's bytes, from which rows are picked and which are read back. Experts of such
//! formats stay as they are in the file, because there are too many of them for F16.
//!
//! Q4_0: two values per byte, the even element in the low nibble, two's complement. Q8_0, Q5_0: a byte per value; what
//! is Q5_0 in the file needs more room then. Scales are F16, [rows, cols / 32]. All three are exact and can be undone.

use crate::format;
use half::f16;
use llmrt_plugin::abi::types::{LAYOUT_INVERTIBLE, ROLE_EMBEDDING, ROLE_EXPERTS, ROLE_MATRIX, TENSOR_WEIGHT};
use llmrt_plugin::{DType, Error, Layout, Result, TensorView};

/// Elements that share a scale.
pub const GROUP: usize = 32;

/// Values of 4 bits.
pub const INT4: u32 = 1;
/// Values of 8 bits.
pub const INT8: u32 = 2;
/// Numbers as F16, and the file's bytes.
pub const F16: u32 = 3;

/// The layout a weight gets at `seal`; `None` if it stays as it is.
pub fn of_weight(t: &TensorView<'_>) -> Option<Layout> {
    let is_matrix = matches!(t.role(), ROLE_MATRIX | ROLE_EXPERTS | ROLE_EMBEDDING);
    if !is_matrix || t.flags() & TENSOR_WEIGHT == 0 || !t.is_contiguous() {
        return None;
    }
    let (id, name) = match t.dtype()? {
        DType::Q4_0 => (INT4, "int4 values, then scales"),
        DType::Q8_0 | DType::Q5_0 => (INT8, "int8 values, then scales"),
        dtype if format::of(dtype).is_some() && t.role() != ROLE_EXPERTS => {
            (F16, "F16 numbers, then as in the file")
        }
        _ => return None,
    };
    let stored_bytes = bytes_in(id, t);
    Some(Layout { id, flags: LAYOUT_INVERTIBLE, stored_bytes, row_granularity: t.n_rows() as u64, name })
}

/// Bytes of a tensor in the layout it has.
pub fn stored_bytes(t: &TensorView<'_>) -> u64 {
    match t.layout_id() {
        0 => t.nbytes(),
        id => bytes_in(id, t),
    }
}

/// Where the bytes of the file are kept in the layout a tensor has; `None` if they are not.
pub fn canonical_at(t: &TensorView<'_>) -> Option<u64> {
    match t.layout_id() {
        0 => Some(0),
        F16 => Some(2 * t.n_elements() as u64),
        _ => None,
    }
}

/// Offset of the scales.
pub fn scales_at(id: u32, n_elements: usize) -> u64 {
    if id == INT4 { n_elements as u64 / 2 } else { n_elements as u64 }
}

fn bytes_in(id: u32, t: &TensorView<'_>) -> u64 {
    let n = t.n_elements();
    if id == F16 { 2 * n as u64 + t.nbytes() } else { scales_at(id, n) + (n / GROUP * 2) as u64 }
}

/// The numbers of a weight as F16, then its bytes.
fn halves(dtype: DType, canonical: &[u8]) -> Result<Vec<u8>> {
    let format = format::of(dtype).ok_or_else(|| Error::invalid(format!("no F16 form of {dtype}")))?;
    let (mut stored, mut numbers) = (Vec::new(), vec![0.0; format.n]);
    for block in canonical.chunks_exact(format.bytes) {
        format::decode(&format, block, &mut numbers);
        stored.extend(numbers.iter().flat_map(|x| f16::from_f32(*x).to_le_bytes()));
    }
    stored.extend_from_slice(canonical);
    Ok(stored)
}

/// A weight's canonical bytes in its layout.
pub fn transform(t: &TensorView<'_>, canonical: &[u8]) -> Result<Vec<u8>> {
    let dtype = t.dtype().ok_or_else(|| Error::invalid("an unknown dtype"))?;
    let id = of_weight(t).map_or(0, |layout| layout.id);
    if id == F16 {
        return halves(dtype, canonical);
    }
    let mut stored = vec![0; bytes_in(id, t) as usize];
    let (values, scales) = stored.split_at_mut(scales_at(id, t.n_elements()) as usize);
    let per_group = values.len() / (t.n_elements() / GROUP).max(1);
    let groups = values.chunks_exact_mut(per_group.max(1)).zip(scales.as_chunks_mut::<2>().0);
    for (block, (values, scale)) in canonical.chunks_exact(dtype.block_bytes()).zip(groups) {
        scale.copy_from_slice(&block[..2]);
        write_values(values, &quants(dtype, block));
    }
    Ok(stored)
}

/// The canonical bytes of a weight from those in its layout.
pub fn restore(t: &TensorView<'_>, stored: &[u8]) -> Result<Vec<u8>> {
    let dtype = t.dtype().ok_or_else(|| Error::invalid("an unknown dtype"))?;
    if let (F16, Some(kept)) = (t.layout_id(), canonical_at(t)) {
        return Ok(stored[kept as usize..].to_vec());
    }
    let (values, scales) = stored.split_at(scales_at(t.layout_id(), t.n_elements()) as usize);
    let per_group = values.len() / (t.n_elements() / GROUP).max(1);
    let groups = values.chunks_exact(per_group.max(1)).zip(scales.as_chunks::<2>().0);
    let mut canonical = vec![0; t.n_elements() / GROUP * dtype.block_bytes()];
    for (block, (values, scale)) in canonical.chunks_exact_mut(dtype.block_bytes()).zip(groups) {
        block[..2].copy_from_slice(scale);
        write_quants(dtype, block, &read_values(values));
    }
    Ok(canonical)
}

/// The values of a block as signed integers.
fn quants(dtype: DType, block: &[u8]) -> [i8; GROUP] {
    std::array::from_fn(|i| {
        let nibble = |bytes: &[u8]| (bytes[i % 16] >> (i / 16 * 4) & 15) as i8;
        match dtype {
            DType::Q4_0 => nibble(&block[2..]) - 8,
            DType::Q5_0 => {
                let high = (u32::from_le_bytes([block[2], block[3], block[4], block[5]]) >> i & 1) as i8;
                (nibble(&block[6..]) | high << 4) - 16
            }
            _ => block[2 + i] as i8,
        }
    })
}

/// The inverse of [`quants`], written after the scale.
fn write_quants(dtype: DType, block: &mut [u8], values: &[i8; GROUP]) {
    let (offset, at) = match dtype {
        DType::Q4_0 => (8, 2),
        DType::Q5_0 => (16, 6),
        _ => {
            block[2..].iter_mut().zip(values).for_each(|(byte, v)| *byte = *v as u8);
            return;
        }
    };
    let unsigned = |i: usize| (values[i] + offset) as u8;
    for i in 0..GROUP / 2 {
        block[at + i] = unsigned(i) & 15 | (unsigned(i + GROUP / 2) & 15) << 4;
    }
    if dtype == DType::Q5_0 {
        let bits = (0..GROUP).fold(0u32, |bits, i| bits | ((unsigned(i) >> 4) as u32) << i);
        block[2..6].copy_from_slice(&bits.to_le_bytes());
    }
}

/// 16 bytes take two values each, 32 bytes one.
fn write_values(bytes: &mut [u8], values: &[i8; GROUP]) {
    match bytes.len() {
        GROUP => bytes.iter_mut().zip(values).for_each(|(byte, v)| *byte = *v as u8),
        _ => {
            let pairs = values.as_chunks::<2>().0;
            bytes.iter_mut().zip(pairs).for_each(|(byte, v)| *byte = v[0] as u8 & 15 | (v[1] as u8) << 4);
        }
    }
}

fn read_values(bytes: &[u8]) -> [i8; GROUP] {
    match bytes.len() {
        GROUP => std::array::from_fn(|i| bytes[i] as i8),
        // Shifted up and down again, so that the nibble's sign comes along.
        _ => std::array::from_fn(|i| ((bytes[i / 2] >> (i % 2 * 4)) as i8) << 4 >> 4),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_comes_back_as_it_was() {
        for (dtype, width) in [(DType::Q4_0, 16), (DType::Q5_0, 32), (DType::Q8_0, 32)] {
            let mut seed = 1u32;
            for _ in 0..200 {
                let byte = |_| {
                    seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    (seed >> 24) as u8
                };
                let block: Vec<u8> = (0..dtype.block_bytes()).map(byte).collect();
                let mut values = vec![0; width];
                write_values(&mut values, &quants(dtype, &block));
                let mut back = vec![0; dtype.block_bytes()];
                back[..2].copy_from_slice(&block[..2]);
                write_quants(dtype, &mut back, &read_values(&values));
                assert_eq!(back, block, "{dtype}");
            }
        }
    }

    #[test]
    fn the_even_element_is_in_the_low_nibble_and_signed() {
        let mut block = [0u8; 18];
        block[2] = 0x0f; // element 0 is 15 - 8, element 16 is 0 - 8
        block[3] = 0xf0; // element 1 is 0 - 8, element 17 is 15 - 8
        let mut values = [0; 16];
        write_values(&mut values, &quants(DType::Q4_0, &block));
        assert_eq!((values[0], values[8]), (0x87, 0x78));
    }
}
