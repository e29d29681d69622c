//! Columns of activations, packed: tiles of 12, in each the 12 numbers of one k after those of the other. A single column is
//! a tile of its own width, as it lies.

use super::TILE;
use crate::ops::{Column, rows};
use crate::scratch::Arena;
use crate::simd::{Isa, LANES, Simd, dispatch};
use crate::tensor::Tensor;

/// Elements of k at a time.
const STRETCH: usize = 256;
/// Bytes of a row of a stretch on its way, and some more so that rows do not fall on each other in the first cache.
const ROW_BYTES: usize = 4 * STRETCH + 64;

/// Columns of each tile when there are `n`.
pub fn width(n: usize) -> usize {
    if n == 1 { 1 } else { TILE }
}

/// Tiles that `n` columns make.
pub fn n_tiles(n: usize) -> usize {
    n.div_ceil(width(n))
}

/// Numbers of `n` packed columns of `k` elements.
pub fn packed_len(k: usize, n: usize) -> usize {
    n_tiles(n) * width(n) * k
}

/// The packed columns, where they lie like that already.
pub fn ready<'a>(x: &'a Tensor, columns: &[Column]) -> Option<&'a [f32]> {
    match columns {
        [column] if x.has_f32_rows() => Some(x.row(x.unravel(column.x))),
        _ => None,
    }
}

/// Packs all columns, rows of x in any dtype.
pub fn pack_all(isa: Isa, x: &Tensor, columns: &[Column], room: &mut Arena, out: &mut Arena) {
    let (k, width) = (x.ne[0], width(columns.len()));
    let out = out.take(packed_len(k, columns.len()));
    for (columns, out) in columns.chunks(width).zip(out.chunks_exact_mut(width * k)) {
        pack(isa, x, columns, width, room, out);
    }
}

/// Packs a tile, [k][width]: at most `width` columns, rows of x in any dtype; zeros where there are fewer.
pub fn pack(isa: Isa, x: &Tensor, columns: &[Column], width: usize, room: &mut Arena, out: &mut [f32]) {
    let k = x.ne[0];
    let mut converted = [0.0; STRETCH];
    let rows = room.take::<u8>(LANES * ROW_BYTES);
    rows.fill(0);
    for (start, out) in (0..k).step_by(STRETCH).zip(out.chunks_mut(STRETCH * width)) {
        let part = start..(start + STRETCH).min(k);
        for (column, row) in columns.iter().zip(rows.chunks_exact_mut(ROW_BYTES)) {
            let numbers = rows::read(isa, x, x.unravel(column.x), part.clone(), &mut converted);
            match width {
                1 => out.copy_from_slice(numbers),
                _ => row.as_chunks_mut().0.iter_mut().zip(numbers).for_each(|(to, v)| *to = v.to_ne_bytes()),
            }
        }
        if width == TILE {
            interleave(isa, rows, out);
        }
    }
}

dispatch! {
    /// The numbers of 12 rows side by side.
    fn interleave(rows: &[u8], out: &mut [f32]) = interleave_with;
}

#[inline(always)]
fn interleave_with<S: Simd>(s: S, rows: &[u8], out: &mut [f32]) {
    let n = out.len() / TILE;
    for first in (0..n).step_by(4) {
        let four = s.transpose(&rows[4 * first..], ROW_BYTES);
        for (k, v) in (first..n).zip(four) {
            let to = &mut out[k * TILE..];
            match to.first_chunk_mut() {
                // The next numbers overwrite the last four.
                Some(to) => s.store(s.from_bits(v), to),
                None => s.store_part(s.from_bits(v), to),
            }
        }
    }
}
