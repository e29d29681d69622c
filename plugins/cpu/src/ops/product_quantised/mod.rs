//! Products of quantised weights: panels of 16 rows, unpacked to 8 bits, times columns of activations in 8 bits.

mod ahead;
mod by_elements;
#[cfg(any(test, target_arch = "x86_64"))]
mod by_tiles;
mod columns;
mod form;
mod many;
#[cfg(test)]
mod tests;

use super::output::Tile;
use super::product::{AHEAD, MAX_FEW_COLUMNS, Product};
use crate::quant::{Format, MAX_GROUPS, Multiply, Panel, Places, ROWS, RowByRow, SideBySide, XGroup};
use crate::scratch::Scratch;
#[cfg(any(test, target_arch = "x86_64"))]
use crate::simd::tiles::Tiles;
use crate::simd::{Isa, Simd, Stream, array, dispatch_also};
use ahead::NextRows;
#[cfg(any(test, target_arch = "x86_64"))]
use by_tiles::ByTiles;
use form::{Bytes, Words};
use many::many_columns;
use std::marker::PhantomData;
use std::ops::Range;

/// Makes the elements of all columns that are in `y`.
pub fn quantised<F: Format>(isa: Isa, p: &Product<'_>, y: &mut Tile<'_>, scratch: &mut Scratch) {
    #[cfg(target_arch = "x86_64")]
    if let Some(amx) = crate::simd::Amx::of(isa)
        && p.columns.len() >= TILED
    {
        // SAFETY: the instruction set comes from `Isa::available`, which found these features.
        return unsafe { with_amx::<F>(amx, p, y, scratch) };
    }
    with_vectors::<F>(isa, p, y, scratch);
}

dispatch_also! {
    AvxVnni "avxvnni,avx2,fma,f16c",
    Avx512Vnni | Avx512Bf16 | Avx512Amx "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c";
    fn with_vectors<F: Format>(p: &Product<'_>, y: &mut Tile<'_>, scratch: &mut Scratch) = quantised_with;
}

/// As [`quantised_with`] of AVX-512 VNNI, but for products of bytes.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn with_amx<F: Format>(amx: crate::simd::Amx, p: &Product<'_>, y: &mut Tile<'_>, scratch: &mut Scratch) {
    // SAFETY: the features are those of this function, so the machine has them.
    let s = unsafe { crate::simd::Avx512Vnni::new() };
    with_tiles::<_, F, crate::simd::AmxTiles>(s, amx, p, y, scratch);
}

/// Columns from which on tiles multiply them.
#[cfg(target_arch = "x86_64")]
const TILED: usize = 16;
/// Columns at a time: so many groups of them stay in the second cache.
const COLUMNS: usize = 256;
/// Columns from which on words pay for their conversion.
const BY_WORDS: usize = 24;

#[inline(always)]
fn quantised_with<S: Simd, F: Format>(s: S, p: &Product<'_>, y: &mut Tile<'_>, scratch: &mut Scratch) {
    let [mut rows, ..] = y.dims();
    if F::PLACES != Places::Scattered && p.w.columns.is_some() && by_elements::is_worth(p) {
        return by_elements::few_columns::<S, F>(s, p, y, &rows, scratch);
    }
    rows.start = match p.columns.len() {
        0 => rows.start,
        1 if S::TILED && p.w.panels.is_none() => one_column::<S, F>(s, p, y, &rows),
        1 if S::TILED => few_columns::<S, F, 1>(s, p, y, &rows),
        2 if S::TILED => few_columns::<S, F, 2>(s, p, y, &rows),
        3..=4 if S::WIDE => few_columns::<S, F, 4>(s, p, y, &rows),
        5..=MAX_FEW_COLUMNS if S::WIDE => few_columns::<S, F, MAX_FEW_COLUMNS>(s, p, y, &rows),
        _ => rows.start,
    };
    if !rows.is_empty() {
        let (mut bytes, mut words) = (Bytes::<F>(PhantomData), Words::<F>(PhantomData));
        for columns in p.columns.chunks(COLUMNS) {
            let p = &Product { columns, ..*p };
            let by_words = S::BY_WORDS && F::Group::IS_BYTES && columns.len() >= BY_WORDS;
            match (S::WIDE, by_words) {
                (true, false) => many_columns::<S, _, 2>(s, &mut bytes, p, y, &rows, scratch),
                (true, true) => many_columns::<S, _, 2>(s, &mut words, p, y, &rows, scratch),
                (false, false) => many_columns::<S, _, 1>(s, &mut bytes, p, y, &rows, scratch),
                (false, true) => many_columns::<S, _, 1>(s, &mut words, p, y, &rows, scratch),
            }
        }
    }
}

/// As [`quantised_with`] of many columns, eight of them at a time by tiles.
#[cfg(any(test, target_arch = "x86_64"))]
#[inline(always)]
fn with_tiles<S: Simd, F: Format, T: Tiles>(
    s: S,
    machine: T::Machine,
    p: &Product<'_>,
    y: &mut Tile<'_>,
    scratch: &mut Scratch,
) {
    let [rows, ..] = y.dims();
    let mut tiles = ByTiles::<F, T>::new(machine);
    for columns in p.columns.chunks(COLUMNS) {
        many_columns::<S, _, 2>(s, &mut tiles, &Product { columns, ..*p }, y, &rows, scratch);
    }
}

/// Rows as in the file times one column, 16 at a time, block by block; the first row that is left.
#[inline(always)]
fn one_column<S: Simd, F: Format>(s: S, p: &Product<'_>, y: &mut Tile<'_>, rows: &Range<usize>) -> usize {
    let (n_groups, stride) = (p.w.ne[0] / crate::quant::GROUP, p.w.nb[1]);
    let x = &p.quantised[p.columns[0].x * n_groups..][..n_groups];
    let mut groups = [F::Group::ZERO; MAX_GROUPS];
    let groups = &mut groups[..F::GROUPS];
    let mut first = rows.start;
    while first + ROWS <= rows.end {
        let ahead = NextRows::of::<F>(p, first + ROWS, 0..n_groups);
        let bytes = &p.w.bytes()[p.w.offset_of([first, p.at[0], p.at[1]])..];
        let mut sums = [[s.zero()]];
        for (i, x) in x.chunks_exact(F::GROUPS).enumerate() {
            ahead.prefetch_step(i, n_groups / F::GROUPS);
            F::unpack(s, RowByRow { bytes: &bytes[i * F::BLOCK_BYTES..], stride }, groups);
            sums = F::Group::add_products::<S, 1, 1>(s, [groups], [x], (), sums);
        }
        let y = y.part(y.unravel(p.columns[0].y), first..first + ROWS);
        y.as_chunks_mut().0.iter_mut().for_each(|y| s.store(sums[0][0], y));
        first += ROWS;
    }
    first
}

/// Sealed panels times at most `C` columns, block by block as memory brings them; the first row that is left.
#[inline(always)]
fn few_columns<S: Simd, F: Format, const C: usize>(
    s: S,
    p: &Product<'_>,
    y: &mut Tile<'_>,
    rows: &Range<usize>,
) -> usize {
    let n_groups = p.w.ne[0] / crate::quant::GROUP;
    let last = p.columns.len() - 1;
    let x: [&[XGroup]; C] = array(|c| &p.quantised[p.columns[c.min(last)].x * n_groups..][..n_groups]);
    let mut groups = [F::Group::ZERO; MAX_GROUPS];
    let groups = &mut groups[..F::GROUPS];
    let mut first = rows.start;
    while first + ROWS <= rows.end
        && let Some(panel) = p.w.panel([first, p.at[0], p.at[1]])
    {
        let mut sums = [[s.zero(); C]];
        for (i, block) in panel.chunks_exact(ROWS * F::BLOCK_BYTES).enumerate() {
            F::unpack(s, SideBySide(block), groups);
            let ahead = Stream { at: block.as_ptr().wrapping_add(AHEAD), each: block.len() / F::GROUPS };
            let x = array(|c: usize| &x[c][i * F::GROUPS..][..F::GROUPS]);
            sums = F::Group::add_products::<S, 1, C>(s, [groups], x, ahead, sums);
        }
        for (column, sum) in p.columns.iter().zip(sums[0]) {
            let y = y.part(y.unravel(column.y), first..first + ROWS);
            y.as_chunks_mut().0.iter_mut().for_each(|y| s.store(sum, y));
        }
        first += ROWS;
    }
    first
}
