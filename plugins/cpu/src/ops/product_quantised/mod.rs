//! Products of quantised weights: panels of 16 rows, unpacked to 8 bits, times columns of activations in 8 bits.

mod active;
mod ahead;
mod by_elements;
mod columns;
mod form;
mod many;

use super::output::Tile;
use super::product::{AHEAD, MAX_FEW_COLUMNS, Product};
use crate::quant::{Anywhere, Format, MAX_GROUPS, Multiply, Panel, ROWS, SideBySide, XGroup};
use crate::scratch::Scratch;
use crate::simd::{Simd, Stream, array, dispatch_also};
use ahead::NextRows;
use form::{Bytes, Words};
use many::many_columns;
use std::ops::Range;

dispatch_also! {
    AvxVnni "avxvnni,avx2,fma,f16c",
    Avx512Vnni | Avx512Bf16 "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c";
    /// Makes the elements of all columns that are in `y`.
    pub fn quantised<F: Format>(p: &Product<'_>, y: &mut Tile<'_>, scratch: &mut Scratch) = quantised_with;
}

/// Columns at a time: so many groups of them stay in the second cache.
const COLUMNS: usize = 256;
/// Columns from which on words pay for their conversion.
const BY_WORDS: usize = 24;

#[inline(always)]
fn quantised_with<S: Simd, F: Format>(s: S, p: &Product<'_>, y: &mut Tile<'_>, scratch: &mut Scratch) {
    debug_assert!(p.picked.is_none() || p.w.panels.is_none() && p.w.columns.is_none());
    let [mut rows, ..] = y.dims();
    if p.w.columns.is_some() && by_elements::is_worth(p) {
        return by_elements::few_columns::<S, F>(s, p, y, &rows, scratch);
    }
    rows.start = match p.columns.len() {
        0 => rows.start,
        1 if S::TILED => few_columns::<S, F, 1>(s, p, y, &rows),
        2 if S::TILED => few_columns::<S, F, 2>(s, p, y, &rows),
        3..=4 if S::WIDE => few_columns::<S, F, 4>(s, p, y, &rows),
        5..=MAX_FEW_COLUMNS if S::WIDE => few_columns::<S, F, MAX_FEW_COLUMNS>(s, p, y, &rows),
        _ => rows.start,
    };
    if !rows.is_empty() {
        for columns in p.columns.chunks(COLUMNS) {
            let p = &Product { columns, ..*p };
            let by_words = S::BY_WORDS && F::Group::IS_BYTES && columns.len() >= BY_WORDS;
            match (S::WIDE, by_words) {
                (true, false) => many_columns::<S, Bytes<F>, 2>(s, p, y, &rows, scratch),
                (true, true) => many_columns::<S, Words<F>, 2>(s, p, y, &rows, scratch),
                (false, false) => many_columns::<S, Bytes<F>, 1>(s, p, y, &rows, scratch),
                (false, true) => many_columns::<S, Words<F>, 1>(s, p, y, &rows, scratch),
            }
        }
    }
}

/// Rows in a layout that is read 16 at a time, times at most `C` columns; the first row that is left: of others, all.
#[inline(always)]
fn few_columns<S: Simd, F: Format, const C: usize>(
    s: S,
    p: &Product<'_>,
    y: &mut Tile<'_>,
    rows: &Range<usize>,
) -> usize {
    match (p.w.panels.is_some(), p.w.columns.is_some()) {
        (true, _) => panels_times_few::<S, F, C>(s, p, y, rows),
        (false, true) => rows.start,
        (false, false) => rows_times_few::<S, F, C>(s, p, y, rows),
    }
}

/// Rows as in the file times at most `C` columns, 16 at a time, block by block; the first row that is left.
#[inline(always)]
fn rows_times_few<S: Simd, F: Format, const C: usize>(
    s: S,
    p: &Product<'_>,
    y: &mut Tile<'_>,
    rows: &Range<usize>,
) -> usize {
    let n_groups = p.w.ne[0] / crate::quant::GROUP;
    let x = columns_of::<C>(p, n_groups);
    let mut groups = [F::Group::ZERO; MAX_GROUPS];
    let groups = &mut groups[..F::GROUPS];
    let mut first = rows.start;
    if first + ROWS > rows.end {
        return first;
    }
    let mut next = p.row_set(first, ROWS);
    if p.picked.is_some() {
        let ahead = NextRows::of::<F>(&next, &(0..n_groups));
        (0..n_groups / F::GROUPS).for_each(|i| ahead.prefetch_step(i));
    }
    // Of a whole matrix, the rows of the next piece follow.
    let end = p.picked.map_or(p.w.ne[1], <[usize]>::len);
    while first + ROWS <= rows.end {
        let these = next;
        let ahead = (first + ROWS < end).then(|| {
            next = p.row_set(first + ROWS, ROWS.min(end - first - ROWS));
            NextRows::of::<F>(&next, &(0..n_groups))
        });
        let mut sums = [[s.zero(); C]];
        for i in 0..n_groups / F::GROUPS {
            if let Some(ahead) = &ahead {
                ahead.prefetch_step(i);
            }
            F::unpack(s, Anywhere { rows: &these, at: i * F::BLOCK_BYTES }, groups);
            let x = array(|c: usize| &x[c][i * F::GROUPS..][..F::GROUPS]);
            sums = F::Group::add_products::<S, 1, C>(s, [groups], x, (), sums);
        }
        store_panel(s, p, y, first, sums[0]);
        first += ROWS;
    }
    first
}

/// Groups of at most `C` columns; the last one stands in for others.
#[inline(always)]
fn columns_of<'a, const C: usize>(p: &Product<'a>, n_groups: usize) -> [&'a [XGroup]; C] {
    let last = p.columns.len() - 1;
    array(|c| &p.quantised[p.columns[c.min(last)].x * n_groups..][..n_groups])
}

/// Stores the sums of 16 rows, column by column.
#[inline(always)]
fn store_panel<S: Simd, const C: usize>(
    s: S,
    p: &Product<'_>,
    y: &mut Tile<'_>,
    first: usize,
    sums: [S::F; C],
) {
    for (column, sum) in p.columns.iter().zip(sums) {
        let y = y.part(y.unravel(column.y), first..first + ROWS);
        y.as_chunks_mut().0.iter_mut().for_each(|y| s.store(sum, y));
    }
}

/// Sealed panels times at most `C` columns, block by block as memory brings them; the first row that is left.
#[inline(always)]
fn panels_times_few<S: Simd, F: Format, const C: usize>(
    s: S,
    p: &Product<'_>,
    y: &mut Tile<'_>,
    rows: &Range<usize>,
) -> usize {
    let n_groups = p.w.ne[0] / crate::quant::GROUP;
    let x = columns_of::<C>(p, n_groups);
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
        store_panel(s, p, y, first, sums[0]);
        first += ROWS;
    }
    first
}
