//! Bytes of weights from the file's order into a card's layout, and back.

use crate::format;
use crate::layout::{self, F16, GROUP, INT4_EXPERTS, NZ, NZ_BLOCK};
use half::f16;
use llmrt_plugin::{DType, Error, Result, TensorView};

/// A weight's canonical bytes in a layout.
pub fn transform(t: &TensorView<'_>, id: u32, canonical: &[u8]) -> Result<Vec<u8>> {
    let dtype = t.dtype().ok_or_else(|| Error::invalid("an unknown dtype"))?;
    match id {
        F16 => halves(dtype, canonical),
        NZ => Ok(blocks(canonical, t.ne()[0], t.ne()[1])),
        _ => {
            let places = Places::new(t, id);
            let mut stored = vec![0; places.n_bytes];
            places.for_each(|group, i| {
                let block = &canonical[i * dtype.block_bytes()..][..dtype.block_bytes()];
                stored[group.scale..][..2].copy_from_slice(&block[..2]);
                group.write(&mut stored, &quants(dtype, block));
            });
            Ok(stored)
        }
    }
}

/// The canonical bytes of a weight from those in its layout.
pub fn restore(t: &TensorView<'_>, stored: &[u8]) -> Result<Vec<u8>> {
    let dtype = t.dtype().ok_or_else(|| Error::invalid("an unknown dtype"))?;
    let mut canonical = vec![0; t.nbytes() as usize];
    match (t.layout_id(), layout::canonical_at(t)) {
        (_, Some(kept)) => canonical.copy_from_slice(&stored[kept as usize..][..t.nbytes() as usize]),
        (NZ, _) => for_each_strip(t.ne()[0], t.ne()[1], |plain, blocks| {
            canonical[plain..][..STRIP].copy_from_slice(&stored[blocks..][..STRIP]);
        }),
        (id, _) => Places::new(t, id).for_each(|group, i| {
            let block = &mut canonical[i * dtype.block_bytes()..][..dtype.block_bytes()];
            block[..2].copy_from_slice(&stored[group.scale..][..2]);
            write_quants(dtype, block, &group.read(stored));
        }),
    }
    Ok(canonical)
}

/// Bytes of 16 F16 numbers, a row of a block of FRACTAL_NZ.
const STRIP: usize = 2 * NZ_BLOCK;

/// Rows of `k` F16 numbers in blocks.
pub fn blocks(plain: &[u8], k: usize, rows: usize) -> Vec<u8> {
    let mut stored = vec![0; plain.len()];
    for_each_strip(k, rows, |from, to| stored[to..][..STRIP].copy_from_slice(&plain[from..][..STRIP]));
    stored
}

/// Calls `f` with the places of 16 numbers of a row, in the file and in blocks: those of the same 16 columns follow each other,
/// row after row.
fn for_each_strip(k: usize, rows: usize, mut f: impl FnMut(usize, usize)) {
    let per_row = k / NZ_BLOCK;
    for row in 0..rows {
        for column in 0..per_row {
            f((row * per_row + column) * STRIP, (column * rows + row) * STRIP);
        }
    }
}

/// Where the 32 values of a group are, and their scale.
struct Group {
    /// The first value, counted in values.
    first: usize,
    /// From one value to the next.
    step: usize,
    /// Byte of the scale.
    scale: usize,
    int4: bool,
}

/// Where a weight's groups are.
struct Places {
    id: u32,
    /// Groups of a row, rows of a matrix, matrices.
    dims: [usize; 3],
    scales_at: usize,
    n_bytes: usize,
}

impl Places {
    fn new(t: &TensorView<'_>, id: u32) -> Places {
        let n = t.n_elements();
        let scales_at = layout::scales_at(id, n) as usize;
        let rows = t.ne()[1];
        let dims = [t.ne()[0] / GROUP, rows, t.n_rows() / rows.max(1)];
        Places { id, dims, scales_at, n_bytes: scales_at + n / GROUP * 2 }
    }

    /// Calls `f` with each group and its number in the file.
    fn for_each(&self, mut f: impl FnMut(&Group, usize)) {
        let [per_row, rows, matrices] = self.dims;
        let (columns, int4) = (layout::is_by_columns(self.id), layout::is_int4(self.id));
        for i in 0..per_row * rows * matrices {
            let (matrix, row, group) = (i / per_row / rows, i / per_row % rows, i % per_row);
            let by_columns = (matrix * per_row + group) * rows + row;
            let scale = if columns || self.id == INT4_EXPERTS { by_columns } else { i };
            let (first, step) = match columns {
                true => ((matrix * per_row + group) * GROUP * rows + row, rows),
                false => (i * GROUP, 1),
            };
            f(&Group { first, step, scale: self.scales_at + 2 * scale, int4 }, i);
        }
    }
}

impl Group {
    /// Bytes that hold zeros where the values come.
    fn write(&self, bytes: &mut [u8], values: &[i8; GROUP]) {
        for (i, value) in values.iter().enumerate() {
            let at = self.first + i * self.step;
            match self.int4 {
                true => bytes[at / 2] |= (*value as u8 & 15) << (at % 2 * 4),
                false => bytes[at] = *value as u8,
            }
        }
    }

    fn read(&self, bytes: &[u8]) -> [i8; GROUP] {
        std::array::from_fn(|i| {
            let at = self.first + i * self.step;
            match self.int4 {
                // Shifted up and down again, so that the nibble's sign comes along.
                true => ((bytes[at / 2] >> (at % 2 * 4)) as i8) << 4 >> 4,
                false => bytes[at] as i8,
            }
        })
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(int4: bool, step: usize) -> Group {
        Group { first: 0, step, scale: 0, int4 }
    }

    #[test]
    fn every_block_comes_back_as_it_was() {
        for (dtype, int4) in [(DType::Q4_0, true), (DType::Q5_0, false), (DType::Q8_0, false)] {
            let mut seed = 1u32;
            for n in 0..200 {
                let byte = |_| {
                    seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    (seed >> 24) as u8
                };
                let block: Vec<u8> = (0..dtype.block_bytes()).map(byte).collect();
                let (group, mut values) = (groups(int4, 1 + n % 5), vec![0; 32 * 5]);
                group.write(&mut values, &quants(dtype, &block));
                let mut back = vec![0; dtype.block_bytes()];
                back[..2].copy_from_slice(&block[..2]);
                write_quants(dtype, &mut back, &group.read(&values));
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
        groups(true, 1).write(&mut values, &quants(DType::Q4_0, &block));
        assert_eq!((values[0], values[8]), (0x87, 0x78));
    }
}
