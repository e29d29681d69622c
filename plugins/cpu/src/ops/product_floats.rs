//! Products of weights that are not quantised: panels of 16 rows as f32, a stretch of k at a time.
//!
//! Lane r of every vector belongs to row r, so each result is a sum in one lane: the products of a stretch in order, then
//! the stretches in order. Nothing depends on how the weights lie in memory or how many columns are at hand.

use super::product::{AHEAD, Column, Product};
use super::rows;
use crate::quant::ROWS;
use crate::scratch::Scratch;
use crate::simd::{Isa, Simd, array, dispatch};
use llmrt_plugin::DType;
use std::ops::Range;

dispatch! {
    /// Makes elements `rows` of all columns.
    pub fn floats(p: &Product<'_>, rows: Range<usize>, scratch: &mut Scratch) = floats_with;
}

/// Elements of k whose panels and columns stay in the caches; a whole number of blocks of every dtype.
const STRETCH: usize = 256;
/// Columns side by side.
const WIDTH: usize = 16;
/// Columns at a time: a stretch of them stays in the second cache while the rows pass.
const COLUMNS: usize = 256;

/// 16 numbers, of 16 rows or columns, for each element of a stretch.
type Sixteen = [f32; 16];

#[inline(always)]
fn floats_with<S: Simd>(s: S, p: &Product<'_>, rows: Range<usize>, scratch: &mut Scratch) {
    match p.w.dtype {
        DType::F16 => multiply::<S, F16>(s, p, rows, scratch),
        DType::BF16 => multiply::<S, Bf16>(s, p, rows, scratch),
        _ => multiply::<S, F32>(s, p, rows, scratch),
    }
}

#[inline(always)]
fn multiply<S: Simd, E: Element>(s: S, p: &Product<'_>, mut rows: Range<usize>, scratch: &mut Scratch) {
    if let [column] = p.columns {
        rows.start = one_column::<S, E>(s, p, column, rows.clone());
    }
    if !rows.is_empty() {
        for columns in p.columns.chunks(COLUMNS) {
            many::<S, E>(s, p, columns, rows.clone(), scratch);
        }
    }
}

/// Sealed panels times one column, straight from memory, two streams at a time; the first row that is left.
#[inline(always)]
fn one_column<S: Simd, E: Element>(s: S, p: &Product<'_>, column: &Column, rows: Range<usize>) -> usize {
    let mut first = rows.start;
    while panel(p, first, &rows).is_some() {
        first = match panel(p, first + ROWS, &rows) {
            Some(_) => one_tile::<S, E, 2>(s, p, column, first, &rows),
            None => one_tile::<S, E, 1>(s, p, column, first, &rows),
        };
    }
    first
}

/// The sealed panel that begins with a row, if all of it is wanted.
#[inline(always)]
fn panel<'a>(p: &Product<'a>, first: usize, rows: &Range<usize>) -> Option<&'a [u8]> {
    (first + ROWS <= rows.end).then(|| p.w.panel([first, p.at[0], p.at[1]])).flatten()
}

#[inline(always)]
fn one_tile<S: Simd, E: Element, const P: usize>(
    s: S,
    p: &Product<'_>,
    column: &Column,
    first: usize,
    rows: &Range<usize>,
) -> usize {
    let k = p.w.ne[0];
    let x = &p.x.row(p.x.unravel(column.x))[..k];
    let panels: [&[u8]; P] = array(|i| &panel(p, first + i * ROWS, rows).unwrap_or(&[])[..k * E::SIXTEEN]);
    let mut sums = [s.zero(); P];
    for start in (0..k).step_by(STRETCH) {
        let mut stretch = [s.zero(); P];
        for i in start..(start + STRETCH).min(k) {
            let x = s.splat(x[i]);
            for j in 0..P {
                let w = &panels[j][i * E::SIXTEEN..][..E::SIXTEEN];
                s.prefetch(w.as_ptr().wrapping_add(AHEAD));
                let w = E::load(s, w);
                stretch[j] = s.fma(w, x, stretch[j]);
            }
        }
        sums = array(|j| s.add(sums[j], stretch[j]));
    }
    // SAFETY: these rows of w are this thread's alone.
    let y = unsafe { p.y.part_mut(p.y.unravel(column.y), first..first + P * ROWS) };
    for (y, sum) in y.as_chunks_mut::<ROWS>().0.iter_mut().zip(sums) {
        s.store(sum, y);
    }
    first + P * ROWS
}

/// Rows in any layout times many columns: each stretch of k is laid out for the registers first.
#[inline(always)]
fn many<S: Simd, E: Element>(
    s: S,
    p: &Product<'_>,
    columns: &[Column],
    rows: Range<usize>,
    scratch: &mut Scratch,
) {
    let (k, n_tiles) = (p.w.ne[0], columns.len().div_ceil(WIDTH));
    let n_sums = n_tiles * WIDTH;
    let sums = scratch.sums.take::<Sixteen>(rows.len().div_ceil(ROWS) * n_sums);
    sums.fill([0.0; 16]);
    let x = scratch.floats[0].take::<Sixteen>(n_tiles * STRETCH);
    let w = scratch.panel.take::<Sixteen>(STRETCH);
    for start in (0..k).step_by(STRETCH) {
        let part = start..(start + STRETCH).min(k);
        for (columns, x) in columns.chunks(WIDTH).zip(x.chunks_exact_mut(STRETCH)) {
            turn_columns(s, p, columns, &part, scratch.rows.take(WIDTH * ROW_BYTES), x);
        }
        for (first, sums) in rows.clone().step_by(ROWS).zip(sums.chunks_exact_mut(n_sums)) {
            let n_rows = ROWS.min(rows.end - first);
            unpack::<S, E>(s, p, first, n_rows, &part, &mut scratch.rows, w);
            for (i, sums) in sums.chunks_exact_mut(WIDTH).enumerate() {
                let n = (columns.len() - i * WIDTH).min(WIDTH);
                add_products(s, &w[..part.len()], &x[i * STRETCH..][..part.len()], n, sums);
            }
        }
    }
    for (first, sums) in rows.clone().step_by(ROWS).zip(sums.chunks_exact(n_sums)) {
        let n_rows = ROWS.min(rows.end - first);
        for (column, sums) in columns.iter().zip(sums) {
            // SAFETY: these rows of w are this thread's alone.
            let y = unsafe { p.y.part_mut(p.y.unravel(column.y), first..first + n_rows) };
            y.copy_from_slice(&sums[..n_rows]);
        }
    }
}

/// sums[c] += Σ w · x[c], over a stretch, of the first `n` of 16 columns, or some more.
#[inline(always)]
fn add_products<S: Simd>(s: S, w: &[Sixteen], x: &[Sixteen], n: usize, sums: &mut [Sixteen]) {
    if S::WIDE && n > 8 {
        tile::<S, 16>(s, w, x, 0, sums);
        return;
    }
    if S::WIDE && n > 4 {
        tile::<S, 8>(s, w, x, 0, sums);
        return;
    }
    let mut c = 0;
    while c < n {
        c = match n - c {
            ..5 => tile::<S, 4>(s, w, x, c, sums),
            _ => tile::<S, 6>(s, w, x, c, sums),
        };
    }
}

/// Columns `first..first + C`; the one behind them.
#[inline(always)]
fn tile<S: Simd, const C: usize>(
    s: S,
    w: &[Sixteen],
    x: &[Sixteen],
    first: usize,
    sums: &mut [Sixteen],
) -> usize {
    let mut stretch = [s.zero(); C];
    for (w, x) in w.iter().zip(x) {
        let w = s.load(w);
        let x = x[first..].first_chunk::<C>().unwrap_or(&[0.0; C]);
        for c in 0..C {
            stretch[c] = s.fma(w, s.splat(x[c]), stretch[c]);
        }
    }
    for (sum, stretch) in sums[first..].iter_mut().zip(stretch) {
        s.store(s.add(s.load(sum), stretch), sum);
    }
    first + C
}

/// Bytes of a row of a stretch on its way, and some more so that rows do not fall on each other in the first cache.
const ROW_BYTES: usize = 4 * STRETCH + 64;

/// Columns side by side; zeros where there are fewer than 16.
#[inline(always)]
fn turn_columns<S: Simd>(
    s: S,
    p: &Product<'_>,
    columns: &[Column],
    part: &Range<usize>,
    room: &mut [u8],
    out: &mut [Sixteen],
) {
    let n = 4 * part.len();
    for (i, row) in room.chunks_exact_mut(ROW_BYTES).enumerate() {
        match columns.get(i) {
            Some(column) => {
                row[..n].copy_from_slice(&p.x.row_bytes(p.x.unravel(column.x))[4 * part.start..][..n])
            }
            None => row[..n].fill(0),
        }
    }
    for (i, out) in out[..part.len().next_multiple_of(4)].chunks_exact_mut(4).enumerate() {
        let four = s.transpose(&room[16 * i..], ROW_BYTES);
        for (out, v) in out.iter_mut().zip(four) {
            s.store(s.from_bits(v), out);
        }
    }
}

/// A stretch of 16 rows (of `n_rows`, the others being anything) as f32, side by side.
#[inline(always)]
fn unpack<S: Simd, E: Element>(
    s: S,
    p: &Product<'_>,
    first: usize,
    n_rows: usize,
    part: &Range<usize>,
    room: &mut crate::scratch::Arena,
    out: &mut [Sixteen],
) {
    let at = [first, p.at[0], p.at[1]];
    if n_rows == ROWS
        && let Some(panel) = p.w.panel(at)
    {
        let sixteens = panel[part.start * E::SIXTEEN..].chunks_exact(E::SIXTEEN);
        for (out, w) in out[..part.len()].iter_mut().zip(sixteens) {
            s.store(E::load(s, w), out);
        }
        return;
    }
    let mut done = 0;
    if n_rows == ROWS && p.w.dtype == E::DTYPE && p.w.has_dense_rows() {
        let bytes = &p.w.bytes()[p.w.offset_of(at) + part.start * E::BYTES..];
        let n = 16 / E::BYTES;
        for (i, out) in out[..part.len() / n * n].chunks_exact_mut(n).enumerate() {
            E::split(s, s.transpose(&bytes[16 * i..], p.w.nb[1]), out);
        }
        done = part.len() / n * n;
    }
    if done < part.len() {
        let rest = part.start + done..part.end;
        let room = room.take::<f32>(rest.len());
        for r in 0..n_rows {
            let row = rows::read(Isa::SCALAR, p.w, [first + r, p.at[0], p.at[1]], rest.clone(), room);
            out[done..].iter_mut().zip(row).for_each(|(out, v)| out[r] = *v);
        }
    }
}

/// A dtype of floats.
trait Element {
    const DTYPE: DType;
    /// Bytes of a number.
    const BYTES: usize;
    /// Bytes of 16 numbers.
    const SIXTEEN: usize = 16 * Self::BYTES;
    /// 16 numbers that lie side by side.
    fn load<S: Simd>(s: S, bytes: &[u8]) -> S::F;
    /// The numbers in 16 bytes of each row.
    fn split<S: Simd>(s: S, words: [S::I; 4], out: &mut [Sixteen]);
}

enum F32 {}
enum F16 {}
enum Bf16 {}

impl Element for F32 {
    const DTYPE: DType = DType::F32;
    const BYTES: usize = 4;

    #[inline(always)]
    fn load<S: Simd>(s: S, bytes: &[u8]) -> S::F {
        s.from_bits(s.load_b(bytes.first_chunk().unwrap_or(&[0; 64])))
    }

    #[inline(always)]
    fn split<S: Simd>(s: S, words: [S::I; 4], out: &mut [Sixteen]) {
        for (out, v) in out.iter_mut().zip(words) {
            s.store(s.from_bits(v), out);
        }
    }
}

impl Element for F16 {
    const DTYPE: DType = DType::F16;
    const BYTES: usize = 2;

    #[inline(always)]
    fn load<S: Simd>(s: S, bytes: &[u8]) -> S::F {
        s.load_f16(bytes.first_chunk().unwrap_or(&[0; 32]))
    }

    #[inline(always)]
    fn split<S: Simd>(s: S, words: [S::I; 4], out: &mut [Sixteen]) {
        for (out, v) in out.chunks_exact_mut(2).zip(words) {
            s.store(s.halves(v), &mut out[0]);
            s.store(s.halves(s.shr(v, 16)), &mut out[1]);
        }
    }
}

impl Element for Bf16 {
    const DTYPE: DType = DType::BF16;
    const BYTES: usize = 2;

    #[inline(always)]
    fn load<S: Simd>(s: S, bytes: &[u8]) -> S::F {
        s.load_bf16(bytes.first_chunk().unwrap_or(&[0; 32]))
    }

    #[inline(always)]
    fn split<S: Simd>(s: S, words: [S::I; 4], out: &mut [Sixteen]) {
        for (out, v) in out.chunks_exact_mut(2).zip(words) {
            s.store(s.from_bits(s.shl(v, 16)), &mut out[0]);
            s.store(s.from_bits(s.and(v, s.splat_i(0xffff_0000_u32 as i32))), &mut out[1]);
        }
    }
}
