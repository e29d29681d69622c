//! Columns of activations, packed: tiles of 12, in each the 12 words of one k after those of the other. A single column is
//! a tile of its own width: in place, where words are numbers.

use super::TILE;
use super::weights::bf16_pair;
use crate::ops::{Column, rows};
use crate::scratch::Arena;
use crate::simd::{Isa, LANES, Simd, dispatch};
use crate::tensor::Tensor;
use llmrt_plugin::DType;

/// Numbers of k at a time.
const STRETCH: usize = 256;
/// Bytes of a row of a stretch on its way, and some more so that rows do not fall on each other in the first cache.
const ROW_BYTES: usize = 4 * STRETCH + 64;

/// What the 32 bits of a word hold of a column.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Words {
    /// A number.
    F32,
    /// Two, rounded to bfloat16.
    Bf16Pairs,
}

impl Words {
    /// Those that float weights of a dtype are multiplied with.
    pub fn of(weights: DType) -> Words {
        if weights == DType::BF16 { Words::Bf16Pairs } else { Words::F32 }
    }

    /// Words of a column of `k` numbers.
    pub fn count(self, k: usize) -> usize {
        match self {
            Words::F32 => k,
            Words::Bf16Pairs => k.div_ceil(2),
        }
    }

    /// Words of `n` packed columns of `k` numbers.
    pub fn packed(self, k: usize, n: usize) -> usize {
        n_tiles(n) * width(n) * self.count(k)
    }

    /// The packed columns, where x already has that layout.
    pub fn ready<'a>(self, x: &'a Tensor, columns: &[Column]) -> Option<&'a [f32]> {
        match columns {
            [column] if self.are_ready(x, 1) => Some(x.row(x.unravel(column.x))),
            _ => None,
        }
    }

    /// Whether `n` columns, rows of x, have the packed layout.
    pub fn are_ready(self, x: &Tensor, n: usize) -> bool {
        self == Words::F32 && n == 1 && x.has_f32_rows()
    }
}

/// Columns of each tile when there are `n`.
pub fn width(n: usize) -> usize {
    if n == 1 { 1 } else { TILE }
}

/// Tiles that `n` columns make.
pub fn n_tiles(n: usize) -> usize {
    n.div_ceil(width(n))
}

/// Packs all columns, rows of x in any dtype.
pub fn pack_all(isa: Isa, words: Words, x: &Tensor, columns: &[Column], room: &mut Arena, out: &mut Arena) {
    let (k, width) = (x.ne[0], width(columns.len()));
    let out = out.take(words.packed(k, columns.len()));
    for (columns, out) in columns.chunks(width).zip(out.chunks_exact_mut(width * words.count(k))) {
        pack(isa, words, x, columns, width, room, out);
    }
}

/// Packs a tile, [words of k][width]: at most `width` columns, rows of x in any dtype; zeros where there are fewer.
pub fn pack(
    isa: Isa,
    words: Words,
    x: &Tensor,
    columns: &[Column],
    width: usize,
    room: &mut Arena,
    out: &mut [f32],
) {
    let k = x.ne[0];
    let mut converted = [0.0; STRETCH];
    let rows = room.take::<u8>(LANES * ROW_BYTES);
    rows.fill(0);
    for (start, out) in (0..k).step_by(STRETCH).zip(out.chunks_mut(words.count(STRETCH) * width)) {
        let part = start..(start + STRETCH).min(k);
        for (column, row) in columns.iter().zip(rows.chunks_exact_mut(ROW_BYTES)) {
            let numbers = rows::read(isa, x, x.unravel(column.x), part.clone(), &mut converted);
            let (row, _) = row.as_chunks_mut();
            match words {
                Words::F32 => row.iter_mut().zip(numbers).for_each(|(to, v)| *to = v.to_ne_bytes()),
                Words::Bf16Pairs => pair(isa, numbers, row),
            }
        }
        match width {
            1 => out.iter_mut().zip(rows.as_chunks().0).for_each(|(to, v)| *to = f32::from_ne_bytes(*v)),
            _ => interleave(isa, rows, out),
        }
    }
}

dispatch! {
    /// Numbers as pairs; a last one that is alone, with zero.
    fn pair(numbers: &[f32], out: &mut [[u8; 4]]) = pair_with;
    /// The words of 12 rows side by side.
    fn interleave(rows: &[u8], out: &mut [f32]) = interleave_with;
}

#[inline(always)]
fn pair_with<S: Simd>(_: S, numbers: &[f32], out: &mut [[u8; 4]]) {
    let (pairs, last) = numbers.as_chunks::<2>();
    for (out, [low, high]) in out.iter_mut().zip(pairs) {
        *out = bf16_pair(*low, *high).to_ne_bytes();
    }
    if let ([last], Some(out)) = (last, out.get_mut(pairs.len())) {
        *out = bf16_pair(*last, 0.0).to_ne_bytes();
    }
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
