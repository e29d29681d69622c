//! Products of quantised weights: panels of 16 rows, unpacked to 8 bits, times columns of activations in 8 bits.

mod ahead;
mod by_tiles;
mod columns;
#[cfg(test)]
mod tests;

use super::output::Tile;
use super::product::{AHEAD, Product, write_out};
use crate::quant::{Format, MAX_GROUPS, Panel, ROWS, RowByRow, SideBySide, XGroup};
use crate::scratch::{Arena, Scratch};
use crate::simd::tiles::{NoTiles, Tiles};
use crate::simd::{Isa, LANES, Simd, Stream, array, dispatch_also};
use ahead::{NextColumns, NextPanels, NextRows};
use by_tiles::ByTiles;
use columns::in_sixes;
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
const TILED: usize = 16;
/// Groups unpacked at a time, of all panels side by side: what stays in the first cache beside the columns.
const UNPACKED: usize = 32;
/// Columns at a time: so many groups of them stay in the second cache.
const COLUMNS: usize = 256;

#[inline(always)]
fn quantised_with<S: Simd, F: Format>(s: S, p: &Product<'_>, y: &mut Tile<'_>, scratch: &mut Scratch) {
    let [mut rows, ..] = y.dims();
    rows.start = match p.columns.len() {
        0 => rows.start,
        1 if S::TILED => few_columns::<S, F, 1>(s, p, y, &rows),
        2 if S::TILED => few_columns::<S, F, 2>(s, p, y, &rows),
        3..=4 if S::WIDE => few_columns::<S, F, 4>(s, p, y, &rows),
        5..=8 if S::WIDE => few_columns::<S, F, 8>(s, p, y, &rows),
        _ => rows.start,
    };
    if !rows.is_empty() {
        for columns in p.columns.chunks(COLUMNS) {
            let p = &Product { columns, ..*p };
            match S::WIDE {
                true => many_columns::<S, F, NoTiles, 2>(s, &mut None, p, y, &rows, scratch),
                false => many_columns::<S, F, NoTiles, 1>(s, &mut None, p, y, &rows, scratch),
            }
        }
    }
}

/// As [`quantised_with`] of many columns, eight of them at a time by tiles.
#[inline(always)]
fn with_tiles<S: Simd, F: Format, T: Tiles>(
    s: S,
    machine: T::Machine,
    p: &Product<'_>,
    y: &mut Tile<'_>,
    scratch: &mut Scratch,
) {
    let [rows, ..] = y.dims();
    let mut tiles = Some(ByTiles::<T>::new::<F>(machine, std::mem::take(&mut scratch.gathered)));
    for columns in p.columns.chunks(COLUMNS) {
        many_columns::<S, F, T, 2>(s, &mut tiles, &Product { columns, ..*p }, y, &rows, scratch);
    }
    scratch.gathered = tiles.map_or(vec![], ByTiles::room);
}

/// Rows in any layout, `P` panels at a time, times columns whose next groups stay in the second cache while the rows pass.
#[inline(always)]
fn many_columns<S: Simd, F: Format, T: Tiles, const P: usize>(
    s: S,
    tiles: &mut Option<ByTiles<T>>,
    p: &Product<'_>,
    y: &mut Tile<'_>,
    rows: &Range<usize>,
    scratch: &mut Scratch,
) {
    let (n_groups, n_columns) = (p.w.ne[0] / crate::quant::GROUP, p.columns.len());
    let chunk = UNPACKED / P;
    let panels = scratch.panel.take::<F::Group>(UNPACKED);
    let sums = scratch.sums.take::<[f32; LANES]>(rows.len().div_ceil(P * ROWS) * P * n_columns);
    sums.fill([0.0; LANES]);
    for start in (0..n_groups).step_by(chunk) {
        let groups = start..(start + chunk).min(n_groups);
        if let Some(tiles) = tiles {
            tiles.gather(p, n_groups, &groups);
        }
        for (first, sums) in rows.clone().step_by(P * ROWS).zip(sums.chunks_exact_mut(P * n_columns)) {
            // Panels past the last row keep their contents; their sums are not read.
            for (first, panel) in (first..rows.end).step_by(ROWS).zip(panels.chunks_exact_mut(chunk)) {
                let n_rows = ROWS.min(rows.end - first);
                let ahead = match first + ROWS < rows.end {
                    true => NextRows::of::<F>(p, first + ROWS, groups.clone()),
                    false => NextRows::of::<F>(p, rows.start, groups.end..(groups.end + chunk).min(n_groups)),
                };
                let panel = &mut panel[..groups.len()];
                unpack::<S, F>(s, p, first, n_rows, groups.clone(), panel, &mut scratch.rows, &ahead);
            }
            let panels = array(|i| &panels[i * chunk..][..groups.len()]);
            let next = NextPanels::of::<F>(p, rows, first, &groups);
            multiply::<S, F, T, P>(s, tiles, p, n_groups, &groups, panels, next, sums);
        }
    }
    write_out(s, y, p.columns, rows, sums, n_columns);
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

/// Unpacks groups of the rows from `first` on; fewer than 16 rows are copied to where 16 fit.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
fn unpack<S: Simd, F: Format>(
    s: S,
    p: &Product<'_>,
    first: usize,
    n_rows: usize,
    groups: Range<usize>,
    out: &mut [F::Group],
    padded: &mut Arena,
    ahead: &NextRows,
) {
    let block = F::BLOCK_BYTES;
    let n_bytes = groups.len() / F::GROUPS * block;
    if let Some(panel) = p.w.panel([first, p.at[0], p.at[1]]) {
        let blocks = panel[ROWS * block * (groups.start / F::GROUPS)..].chunks_exact(ROWS * block);
        for (block, out) in blocks.zip(out.chunks_exact_mut(F::GROUPS)) {
            F::unpack(s, SideBySide(block), out);
        }
        return;
    }
    let start = p.w.offset_of([first, p.at[0], p.at[1]]) + groups.start / F::GROUPS * block;
    let (mut bytes, mut stride) = (&p.w.bytes()[start..], p.w.nb[1]);
    if n_rows < ROWS {
        let padded = padded.take::<u8>(ROWS * n_bytes);
        for (r, row) in padded.chunks_exact_mut(n_bytes).enumerate().take(n_rows) {
            row.copy_from_slice(&bytes[r * stride..][..n_bytes]);
        }
        (bytes, stride) = (padded, n_bytes);
    }
    let n_blocks = out.len() / F::GROUPS;
    for (b, out) in out.chunks_exact_mut(F::GROUPS).enumerate() {
        ahead.prefetch_step(b, n_blocks);
        F::unpack(s, RowByRow { bytes: &bytes[b * block..], stride }, out);
    }
}

/// Adds the products of panels with all columns to their sums.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
fn multiply<S: Simd, F: Format, T: Tiles, const P: usize>(
    s: S,
    by_tiles: &mut Option<ByTiles<T>>,
    p: &Product<'_>,
    n_groups: usize,
    groups: &Range<usize>,
    panels: [&[F::Group]; P],
    next: NextPanels<P>,
    sums: &mut [[f32; LANES]],
) {
    let n = p.columns.len();
    let mut done = 0;
    if let Some(by_tiles) = by_tiles {
        done = by_tiles.multiply::<S, F, P>(s, p, n_groups, groups, panels, next, sums);
    }
    if S::WIDE {
        let sixes = done..done + in_sixes(n - done);
        done = tiles::<S, F, P, 6>(s, p, n_groups, groups, panels, next, sums, sixes);
    }
    if S::TILED {
        done = tiles::<S, F, P, 4>(s, p, n_groups, groups, panels, next, sums, done..n);
    }
    if S::TILED && !S::WIDE {
        done = tiles::<S, F, P, 2>(s, p, n_groups, groups, panels, next, sums, done..n);
    }
    tiles::<S, F, P, 1>(s, p, n_groups, groups, panels, next, sums, done..n);
}

/// As many tiles of `C` columns as these columns are; the first column that is left.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
fn tiles<S: Simd, F: Format, const P: usize, const C: usize>(
    s: S,
    p: &Product<'_>,
    n_groups: usize,
    groups: &Range<usize>,
    panels: [&[F::Group]; P],
    next: NextPanels<P>,
    sums: &mut [[f32; LANES]],
    columns: Range<usize>,
) -> usize {
    let n_columns = p.columns.len();
    let distance = C * n_groups * size_of::<XGroup>();
    let mut done = columns.start;
    while done + C <= columns.end {
        let x = array(|c| &p.quantised[p.columns[done + c].x * n_groups..][groups.clone()]);
        let ahead = (NextColumns { x, distance }, next.share(done..done + C, n_columns, groups.len()));
        let mut all = [[s.zero(); C]; P];
        for i in 0..P {
            for c in 0..C {
                all[i][c] = s.load(&sums[i * n_columns + done + c]);
            }
        }
        all = F::Group::add_products::<S, P, C>(s, panels, x, ahead, all);
        for i in 0..P {
            for c in 0..C {
                s.store(all[i][c], &mut sums[i * n_columns + done + c]);
            }
        }
        done += C;
    }
    done
}
