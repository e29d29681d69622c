//! Matrices transposed, and rows in another order.

use llmrt_abi::{DType, DTypeKind};
use llmrt_graph::quant;

/// Whether transposing keeps every number as it is: elements have bytes of their own.
pub fn is_exact(dtype: DType) -> bool {
    dtype.block_elems() == 1 && dtype.info().kind != DTypeKind::Quant
}

/// A matrix of rows of `n_cols` elements, transposed, in the type `to`; float types stay as they are. An error if a
/// number is not finite before or after.
pub fn transposed(dtype: DType, bytes: &[u8], n_cols: usize, to: DType) -> Result<Vec<u8>, &'static str> {
    if let (true, Some(width)) = (is_exact(dtype) && dtype == to, dtype.row_bytes(1)) {
        return Ok(elements_transposed(bytes, n_cols, width as usize));
    }
    if quant::find_invalid(dtype, bytes).is_some() {
        return Err("an element is NaN or infinite: the file is damaged");
    }
    let numbers = quant::dequantise(dtype, bytes);
    let n_rows = numbers.len() / n_cols.max(1);
    let mut turned = vec![0.0; numbers.len()];
    for (r, row) in numbers.chunks_exact(n_cols).enumerate() {
        row.iter().enumerate().for_each(|(c, &x)| turned[c * n_rows + r] = x);
    }
    let bytes = quant::quantise(to, &turned);
    match quant::find_invalid(to, &bytes) {
        Some(_) => Err("an element is too large for the type once it is transposed: start from a float file"),
        None => Ok(bytes),
    }
}

fn elements_transposed(bytes: &[u8], n_cols: usize, width: usize) -> Vec<u8> {
    let row_bytes = n_cols * width;
    let n_rows = bytes.len().checked_div(row_bytes).unwrap_or(0);
    let mut turned = vec![0; bytes.len()];
    for (r, row) in bytes.chunks_exact(row_bytes.max(1)).enumerate() {
        for (c, element) in row.chunks_exact(width).enumerate() {
            let at = (c * n_rows + r) * width;
            turned[at..at + width].copy_from_slice(element);
        }
    }
    turned
}

/// Rows in the order of these ids; there is a row for each.
pub fn ordered(bytes: &[u8], order: &[u32]) -> Vec<u8> {
    let row_bytes = bytes.len().checked_div(order.len()).unwrap_or(0);
    let rows = order.iter().map(|&i| &bytes[i as usize * row_bytes..][..row_bytes]);
    rows.flatten().copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twice_transposed_is_the_same_bytes() {
        let bytes: Vec<u8> = (0..48).collect();
        for (dtype, n_cols, n_rows) in [(DType::F16, 3, 8), (DType::F32, 4, 3), (DType::BF16, 24, 1)] {
            let turned = transposed(dtype, &bytes, n_cols, dtype).unwrap();
            assert_ne!(n_cols > 1 && n_rows > 1, turned == bytes);
            assert_eq!(transposed(dtype, &turned, n_rows, dtype).unwrap(), bytes);
        }
        let turned = transposed(DType::F16, &[0, 1, 2, 3, 4, 5, 6, 7], 2, DType::F16).unwrap();
        assert_eq!(turned, [0, 1, 4, 5, 2, 3, 6, 7]);
    }

    #[test]
    fn quantised_matrices_are_transposed_as_numbers() {
        let numbers: Vec<f32> = (0..64 * 32).map(|i| ((i * 37 % 101) as f32 - 50.0) / 8.0).collect();
        let bytes = quant::quantise(DType::Q8_0, &numbers); // 32 rows of 64
        let turned = transposed(DType::Q8_0, &bytes, 64, DType::Q8_0).unwrap();
        let turned = quant::dequantise(DType::Q8_0, &turned);
        let error =
            (0..32 * 64).map(|i| (turned[i] - numbers[i % 32 * 64 + i / 32]).abs()).fold(0.0, f32::max);
        assert!(error > 0.0 && error < 0.1, "{error}");
    }

    #[test]
    fn rows_follow_the_order() {
        assert_eq!(ordered(&[0, 0, 1, 1, 2, 2], &[2, 0, 1]), [2, 2, 0, 0, 1, 1]);
    }
}
