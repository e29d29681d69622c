//! Products of weights that are not quantised: panels of 16 rows times tiles of 12 columns, a stretch of k at a time.
//!
//! Lane r of every vector belongs to row r, so each result is a sum in one lane: the products of a stretch in order, then
//! the stretches in order; of a pair of bfloat16 numbers the second comes first. Nothing depends on the layout of the weights in
//! memory or how many columns are at hand.

mod by_columns;
mod columns;
mod panels;
mod weights;

pub use columns::{Words, n_tiles, pack, pack_all, width};

use super::float::{F16, F32, Float};
use super::output::Tile;
use super::product::{AHEAD, NextPanels, Product, write_out};
use crate::quant::ROWS;
use crate::scratch::Scratch;
use crate::simd::{Isa, LANES, Prefetcher, Simd, Stream, array, dispatch, dispatch_also};
use llmrt_plugin::DType;
use panels::{Sealed, Unpacked, sealed, unpack};
use std::ops::Range;
use weights::{Bf16Pairs, Decoded, Weights};

/// Makes the elements of all columns that are in `y`.
pub fn floats(isa: Isa, p: &Product<'_>, y: &mut Tile<'_>, scratch: &mut Scratch) {
    match p.w.dtype {
        DType::BF16 => bf16(isa, p, y, scratch),
        _ => others(isa, p, y, scratch),
    }
}

dispatch_also! {
    Avx512Bf16 "avx512bf16,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c";
    fn bf16(p: &Product<'_>, y: &mut Tile<'_>, scratch: &mut Scratch) = multiply_bf16;
}

dispatch! {
    fn others(p: &Product<'_>, y: &mut Tile<'_>, scratch: &mut Scratch) = multiply_others;
}

/// Sums of 16 rows.
type Sums = [f32; LANES];
/// Columns side by side.
pub const TILE: usize = 12;
/// Tiles of columns at a time, at most: a stretch of them and their sums stay in the second cache while the rows pass.
const TILES: usize = 22;

#[inline(always)]
fn multiply_bf16<S: Simd>(s: S, p: &Product<'_>, y: &mut Tile<'_>, scratch: &mut Scratch) {
    multiply::<S, Bf16Pairs>(s, p, y, scratch);
}

#[inline(always)]
fn multiply_others<S: Simd>(s: S, p: &Product<'_>, y: &mut Tile<'_>, scratch: &mut Scratch) {
    match p.w.dtype {
        DType::F16 => multiply::<S, F16>(s, p, y, scratch),
        DType::F32 => multiply::<S, F32>(s, p, y, scratch),
        _ => multiply::<S, Decoded>(s, p, y, scratch),
    }
}

#[inline(always)]
fn multiply<S: Simd, F: Weights>(s: S, p: &Product<'_>, y: &mut Tile<'_>, scratch: &mut Scratch) {
    let ([mut rows, ..], n) = (y.dims(), p.columns.len());
    match n {
        1 if p.w.columns.is_some() => return by_columns::one_column::<S, F>(s, p, y, &rows, scratch),
        _ => {}
    }
    rows.start = match n {
        0 => rows.end,
        1 if S::TILED => few_columns::<S, F, 1, 1>(s, p, y, &rows),
        2 if S::TILED => few_columns::<S, F, 2, TILE>(s, p, y, &rows),
        3..=4 if S::TILED => few_columns::<S, F, 4, TILE>(s, p, y, &rows),
        5..=8 if S::WIDE => few_columns::<S, F, 8, TILE>(s, p, y, &rows),
        9..=12 if S::WIDE => few_columns::<S, F, 12, TILE>(s, p, y, &rows),
        _ => rows.start,
    };
    match (S::WIDE, n) {
        _ if rows.is_empty() => {}
        (_, 1) => many_columns::<S, F, 1, 1>(s, p, y, rows, scratch),
        (true, _) => many_columns::<S, F, 2, TILE>(s, p, y, rows, scratch),
        (false, _) => many_columns::<S, F, 1, TILE>(s, p, y, rows, scratch),
    }
}

/// Sealed panels times at most `C` columns, one after the other straight from memory, which brings one stream sooner than
/// two; the first row that is left. The columns are packed `W` side by side.
#[inline(always)]
fn few_columns<S: Simd, F: Weights, const C: usize, const W: usize>(
    s: S,
    p: &Product<'_>,
    y: &mut Tile<'_>,
    rows: &Range<usize>,
) -> usize {
    let k = p.w.ne[0].div_ceil(F::NUMBERS);
    let mut first = rows.start;
    while let Some(panel) = sealed::<F>(p, first, rows) {
        let at = panel.as_ptr().cast::<u8>().wrapping_add(AHEAD);
        let after = Stream { at, each: size_of::<Sealed<F>>() };
        let mut sums = [s.zero(); C];
        for start in (0..k).step_by(F::STRETCH) {
            let part = start..(start + F::STRETCH).min(k);
            let [stretch] = products::<S, F, F::Word, 1, C, W>(s, [panel], p.packed, part, after);
            for c in 0..C {
                sums[c] = s.add(sums[c], stretch[c]);
            }
        }
        for (column, sum) in p.columns.iter().zip(sums) {
            let y = y.part(y.unravel(column.y), first..first + ROWS);
            y.as_chunks_mut().0.iter_mut().for_each(|y| s.store(sum, y));
        }
        first += ROWS;
    }
    first
}

/// Rows in any layout, `P` panels at a time, times many columns: stretches of the panels are made words of 32 bits first.
#[inline(always)]
fn many_columns<S: Simd, F: Weights, const P: usize, const W: usize>(
    s: S,
    p: &Product<'_>,
    y: &mut Tile<'_>,
    rows: Range<usize>,
    scratch: &mut Scratch,
) {
    let k = p.w.ne[0].div_ceil(F::NUMBERS);
    let tiles = p.packed.chunks_exact(W * k);
    // As many each time, since all weights are read each time.
    let per_pass = tiles.len().div_ceil(tiles.len().div_ceil(TILES));
    for (columns, first_tile) in p.columns.chunks(per_pass * W).zip((0..).step_by(per_pass)) {
        let n_tiles = columns.len().div_ceil(W);
        let n_sums = n_tiles * W;
        let sums = scratch.sums.take::<Sums>(rows.len().div_ceil(P * ROWS) * P * n_sums);
        sums.fill([0.0; LANES]);
        let panels = scratch.panel.take::<Unpacked>(P * F::STRETCH);
        for start in (0..k).step_by(F::STRETCH) {
            let part = start..(start + F::STRETCH).min(k);
            for (first, sums) in rows.clone().step_by(P * ROWS).zip(sums.chunks_exact_mut(P * n_sums)) {
                // Panels past the last row keep their contents; their sums are not read.
                let ready = |first: usize| sealed::<F>(p, first, &rows).and_then(F::unpacked);
                for (first, panel) in (first..rows.end).step_by(ROWS).zip(panels.chunks_exact_mut(F::STRETCH))
                {
                    if ready(first).is_none() {
                        let n_rows = ROWS.min(rows.end - first);
                        unpack::<S, F, P>(s, p, first, n_rows, &part, &mut scratch.rows, panel);
                    }
                }
                let ready: [Option<&[Unpacked]>; P] = array(|i| ready(first + i * ROWS));
                let panels: [&[Unpacked]; P] = array(|i| match ready[i] {
                    Some(panel) => &panel[part.clone()],
                    None => &panels[i * F::STRETCH..][..part.len()],
                });
                let bytes = size_of::<Sealed<F>>() * part.start..size_of::<Sealed<F>>() * part.end;
                let after = NextPanels::<P>::of(p, &rows, first, &bytes);
                for (i, tile) in tiles.clone().skip(first_tile).take(n_tiles).enumerate() {
                    let x = &tile[part.start * W..part.end * W];
                    let at = x.as_ptr().cast::<u8>().wrapping_add(size_of_val(tile));
                    let next = Stream { at, each: W * size_of::<f32>() };
                    let after = after.share(i..i + 1, n_tiles, part.len());
                    let n = (columns.len() - i * W).min(W);
                    let sums = &mut sums[i * W..];
                    if S::WIDE {
                        add_tile::<S, F, P, W>(s, panels, x, n, (next, after), n_sums, sums);
                    } else {
                        // Steps of few registers have no time for it; what is unpacked was prefetched with that.
                        if ready[0].is_some() {
                            (0..part.len()).for_each(|step| after.prefetch_step(step));
                        }
                        add_tile::<S, F, P, W>(s, panels, x, n, next, n_sums, sums);
                    }
                }
            }
        }
        write_out(s, y, columns, &rows, sums, n_sums);
    }
}

/// Adds a stretch of the first `n` columns of a tile, or some more, to its sums: those of each panel are `distance` apart.
/// `next` are the tile and the panels that come next.
#[inline(always)]
fn add_tile<S: Simd, F: Weights, const P: usize, const W: usize>(
    s: S,
    panels: [&[Unpacked]; P],
    x: &[f32],
    n: usize,
    next: impl Prefetcher,
    distance: usize,
    sums: &mut [Sums],
) {
    match (S::WIDE, n) {
        _ if W == 1 => add_columns::<S, F, P, 1, W>(s, panels, x, next, distance, sums),
        _ if !S::TILED => {
            for first in 0..n {
                add_columns::<S, F, P, 1, W>(s, panels, &x[first..], next, distance, &mut sums[first..]);
            }
        }
        (_, ..5) => add_columns::<S, F, P, 4, W>(s, panels, x, next, distance, sums),
        (true, 5..9) => add_columns::<S, F, P, 8, W>(s, panels, x, next, distance, sums),
        (true, _) => add_columns::<S, F, P, TILE, W>(s, panels, x, next, distance, sums),
        (false, _) if F::NUMBERS == 1 => {
            for first in (0..n).step_by(6) {
                add_columns::<S, F, P, 6, W>(s, panels, &x[first..], next, distance, &mut sums[first..]);
            }
        }
        // Their halves take registers.
        (false, _) => {
            for first in (0..n).step_by(4) {
                add_columns::<S, F, P, 4, W>(s, panels, &x[first..], next, distance, &mut sums[first..]);
            }
        }
    }
}

#[inline(always)]
fn add_columns<S: Simd, F: Weights, const P: usize, const C: usize, const W: usize>(
    s: S,
    panels: [&[Unpacked]; P],
    x: &[f32],
    next: impl Prefetcher,
    distance: usize,
    sums: &mut [Sums],
) {
    let stretch = products::<S, F, F32, P, C, W>(s, panels, x, 0..panels[0].len(), next);
    for p in 0..P {
        for c in 0..C {
            let sum = &mut sums[p * distance + c];
            s.store(s.add(s.load(sum), stretch[p][c]), sum);
        }
    }
}

/// Σ over a stretch of row r of panel p · column c, lane r; words of panels have the layout of `T`, and x is [k][`W`], of which
/// the first `C` count. Each k prefetches its share.
#[inline(always)]
fn products<S: Simd, F: Weights, T: Float, const P: usize, const C: usize, const W: usize>(
    s: S,
    panels: [&[T::Chunk16]; P],
    x: &[f32],
    part: Range<usize>,
    ahead: impl Prefetcher,
) -> [[S::F; C]; P] {
    let mut stretch = [[s.zero(); C]; P];
    for i in part {
        ahead.prefetch_step(i);
        let mut w = [s.zero(); P];
        for p in 0..P {
            w[p] = T::load(s, &panels[p][i]);
        }
        let x = x[i * W..].first_chunk::<C>().unwrap_or(&[0.0; C]);
        for c in 0..C {
            let x = s.splat(x[c]);
            for p in 0..P {
                stretch[p][c] = F::add_products(s, w[p], x, stretch[p][c]);
            }
        }
    }
    stretch
}
