//! Rows of one weight matrix times chosen columns: what `mul_mat` and `mul_mat_id` are made of.
//!
//! The order of each sum depends on k alone, so one column gives the same bits as many.

use super::{Worker, rows};
use crate::quant::{Format, Panel, ROWS, XGroup, with_format};
use crate::scratch::{Arena, Scratch};
use crate::simd::{Isa, LANES, Simd, dispatch};
use crate::tensor::Tensor;
use llmrt_plugin::DType;
use std::ops::Range;

/// Which row of x makes which row of y.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Row of x, over all its outer dims.
    pub x: usize,
    /// Row of y, over all its outer dims.
    pub y: usize,
}

/// One matrix of weights and the columns it meets.
pub struct Product<'a> {
    /// The weights.
    pub w: &'a Tensor,
    /// Dims 2 and 3 of the matrix.
    pub at: [usize; 2],
    /// The activations.
    pub x: &'a Tensor,
    /// The activations quantised, for quantised weights.
    pub quantised: &'a [XGroup],
    /// The columns.
    pub columns: &'a [Column],
    /// The result, [m, …].
    pub y: &'a Tensor,
}

/// Rows of all matrices, cut into pieces that threads take one after the other.
pub struct Pieces {
    n_rows: usize,
    rows: usize,
    per_matrix: usize,
    n: usize,
}

impl Pieces {
    /// Pieces of whole panels, several per thread.
    pub fn new(n_threads: usize, n_rows: usize, n_matrices: usize) -> Pieces {
        let rows = (n_rows * n_matrices / (n_threads * 8)).next_multiple_of(ROWS).clamp(ROWS, 256);
        let per_matrix = n_rows.div_ceil(rows);
        Pieces { n_rows, rows, per_matrix, n: per_matrix * n_matrices }
    }

    /// Matrix and rows of the next piece.
    pub fn take(&self, w: &Worker<'_>) -> Option<(usize, Range<usize>)> {
        let i = w.take(self.n)?;
        let start = i % self.per_matrix * self.rows;
        Some((i / self.per_matrix, start..(start + self.rows).min(self.n_rows)))
    }
}

/// Makes elements `rows` of all columns. Nobody else makes these.
pub fn compute(isa: Isa, p: &Product<'_>, rows: Range<usize>, scratch: &mut Scratch) {
    with_format!(p.w.dtype, F => quantised::<F>(isa, p, rows, scratch), else {
        match p.w.has_dense_rows() {
            true => floats(isa, p, rows, scratch),
            false => strided(isa, p, rows, scratch),
        }
    })
}

dispatch! {
    fn quantised<F: Format>(p: &Product<'_>, rows: Range<usize>, scratch: &mut Scratch) = quantised_with;
    fn floats(p: &Product<'_>, rows: Range<usize>, scratch: &mut Scratch) = floats_with;
    fn strided(p: &Product<'_>, rows: Range<usize>, scratch: &mut Scratch) = strided_with;
}

/// Groups unpacked at a time: what stays in the first cache beside the columns.
const CHUNK: usize = 32;

#[inline(always)]
fn quantised_with<S: Simd, F: Format>(s: S, p: &Product<'_>, rows: Range<usize>, scratch: &mut Scratch) {
    let n_groups = p.w.ne[0] / crate::quant::GROUP;
    let panel = scratch.panel.take::<F::Group>(CHUNK);
    let sums = scratch.sums.take::<[f32; LANES]>(p.columns.len());
    for first in rows.clone().step_by(ROWS) {
        let n_rows = ROWS.min(rows.end - first);
        sums.fill([0.0; LANES]);
        for start in (0..n_groups).step_by(CHUNK) {
            let groups = start..(start + CHUNK).min(n_groups);
            let panel = &mut panel[..groups.len()];
            let next = match groups.end < n_groups {
                true => (first, groups.end..(groups.end + CHUNK).min(n_groups)),
                false => (first + ROWS, 0..CHUNK.min(n_groups)),
            };
            let ahead = Ahead::of::<F>(p, next.0, next.1);
            unpack::<S, F>(s, p, first, n_rows, groups.clone(), panel, &mut scratch.rows, &ahead);
            multiply::<S, F>(s, p, n_groups, groups, panel, sums);
        }
        for (column, sums) in p.columns.iter().zip(&*sums) {
            // SAFETY: these rows of w are this thread's alone.
            let y = unsafe { p.y.part_mut(p.y.unravel(column.y), first..first + n_rows) };
            y.copy_from_slice(&sums[..n_rows]);
        }
    }
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
    panel: &mut [F::Group],
    padded: &mut Arena,
    ahead: &Ahead,
) {
    let block = F::DTYPE.block_bytes();
    let n_bytes = groups.len() / F::GROUPS * block;
    let start = p.w.offset_of([first, p.at[0], p.at[1]]) + groups.start / F::GROUPS * block;
    let (mut bytes, mut stride) = (&p.w.bytes()[start..], p.w.nb[1]);
    if n_rows < ROWS {
        let padded = padded.take::<u8>(ROWS * n_bytes);
        for (r, row) in padded.chunks_exact_mut(n_bytes).enumerate().take(n_rows) {
            row.copy_from_slice(&bytes[r * stride..][..n_bytes]);
        }
        (bytes, stride) = (padded, n_bytes);
    }
    let n_blocks = panel.len() / F::GROUPS;
    for (b, out) in panel.chunks_exact_mut(F::GROUPS).enumerate() {
        ahead.ask(s, b, n_blocks);
        F::unpack(s, &bytes[b * block..], stride, out);
    }
}

/// The weights that are needed next, asked for while these are unpacked: 16 rows side by side are more streams than
/// the machine foresees.
struct Ahead {
    start: *const u8,
    stride: usize,
    lines: usize,
}

impl Ahead {
    #[inline(always)]
    fn of<F: Format>(p: &Product<'_>, first: usize, groups: Range<usize>) -> Ahead {
        let block = F::DTYPE.block_bytes();
        let start = p.w.offset_of([first, p.at[0], p.at[1]]) + groups.start / F::GROUPS * block;
        let n_bytes = groups.len() / F::GROUPS * block;
        Ahead {
            start: p.w.bytes().as_ptr().wrapping_add(start),
            stride: p.w.nb[1],
            lines: n_bytes.div_ceil(64),
        }
    }

    /// The share of block `b` of `n`.
    #[inline(always)]
    fn ask<S: Simd>(&self, s: S, b: usize, n: usize) {
        let total = self.lines * ROWS;
        for i in total * b / n..total * (b + 1) / n {
            let (row, line) = (i % ROWS, i / ROWS);
            s.prefetch(self.start.wrapping_add(row * self.stride + line * 64));
        }
    }
}

/// Adds the products of a panel with all columns to their sums.
#[inline(always)]
fn multiply<S: Simd, F: Format>(
    s: S,
    p: &Product<'_>,
    n_groups: usize,
    groups: Range<usize>,
    panel: &[F::Group],
    sums: &mut [[f32; LANES]],
) {
    let mut done = 0;
    if S::WIDE {
        done = tiles::<S, F, 12>(s, p, n_groups, &groups, panel, sums, done);
        done = tiles::<S, F, 4>(s, p, n_groups, &groups, panel, sums, done);
    } else {
        done = tiles::<S, F, 2>(s, p, n_groups, &groups, panel, sums, done);
    }
    tiles::<S, F, 1>(s, p, n_groups, &groups, panel, sums, done);
}

/// As many tiles of `C` columns as there are from column `done` on; where it got to.
#[inline(always)]
fn tiles<S: Simd, F: Format, const C: usize>(
    s: S,
    p: &Product<'_>,
    n_groups: usize,
    groups: &Range<usize>,
    panel: &[F::Group],
    sums: &mut [[f32; LANES]],
    mut done: usize,
) -> usize {
    for sums in sums[done..].as_chunks_mut::<C>().0 {
        let x = crate::simd::array(|c| &p.quantised[p.columns[done + c].x * n_groups..][groups.clone()]);
        F::Group::add_products::<S, C>(s, panel, x, sums);
        done += C;
    }
    done
}

/// Rows of weights at hand at a time.
const FLOAT_ROWS: usize = 8;
/// Bytes of activations that stay in the second cache while weights pass.
const COLUMN_BYTES: usize = 256 * 1024;

#[inline(always)]
fn floats_with<S: Simd>(s: S, p: &Product<'_>, rows: Range<usize>, scratch: &mut Scratch) {
    let k = p.w.ne[0];
    let block = (COLUMN_BYTES / (4 * k)).max(4).next_multiple_of(4);
    for columns in p.columns.chunks(block) {
        for first in rows.clone().step_by(FLOAT_ROWS) {
            let rows = first..(first + FLOAT_ROWS).min(rows.end);
            match p.w.dtype {
                DType::F32 => multiply_floats(s, p, columns, rows, |r| F32Row(p.w.row(r))),
                DType::F16 if columns.len() < 3 => {
                    multiply_floats(s, p, columns, rows, |r| F16Row(p.w.row_bytes(r)))
                }
                DType::BF16 if columns.len() < 3 => {
                    multiply_floats(s, p, columns, rows, |r| Bf16Row(p.w.row_bytes(r)))
                }
                _ => {
                    let floats = scratch.rows.take::<f32>(FLOAT_ROWS * k);
                    for (row, out) in rows.clone().zip(floats.chunks_exact_mut(k)) {
                        widen(s, p.w.dtype, p.w.row_bytes([row, p.at[0], p.at[1]]), out);
                    }
                    let floats = &*floats;
                    multiply_floats(s, p, columns, rows, |[r, ..]| F32Row(&floats[(r - first) * k..][..k]));
                }
            }
        }
    }
}

/// Weights whose rows have gaps, such as a transposed cache, are gathered first.
#[inline(always)]
fn strided_with<S: Simd>(s: S, p: &Product<'_>, rows: Range<usize>, scratch: &mut Scratch) {
    let k = p.w.ne[0];
    for first in rows.clone().step_by(FLOAT_ROWS) {
        let rows = first..(first + FLOAT_ROWS).min(rows.end);
        let floats = scratch.rows.take::<f32>(FLOAT_ROWS * k);
        for (row, out) in rows.clone().zip(floats.chunks_exact_mut(k)) {
            rows::read(Isa::SCALAR, p.w, [row, p.at[0], p.at[1]], 0..k, out);
        }
        let floats = &*floats;
        multiply_floats(s, p, p.columns, rows, |[r, ..]| F32Row(&floats[(r - first) * k..][..k]));
    }
}

/// A row of any dtype as f32.
#[inline(always)]
fn widen<S: Simd>(s: S, dtype: DType, bytes: &[u8], out: &mut [f32]) {
    let (vectors, _) = bytes.as_chunks::<32>();
    let full = out.len() / LANES * LANES;
    match dtype {
        DType::F16 => {
            let to = out.as_chunks_mut::<LANES>().0.iter_mut();
            for (v, to) in vectors.iter().zip(to) {
                s.store(s.load_f16(v), to);
            }
        }
        DType::BF16 => {
            let to = out.as_chunks_mut::<LANES>().0.iter_mut();
            for (v, to) in vectors.iter().zip(to) {
                s.store(s.load_bf16(v), to);
            }
        }
        _ => return rows::decode(Isa::SCALAR, dtype, bytes, out),
    }
    rows::decode(Isa::SCALAR, dtype, &bytes[2 * full..], &mut out[full..]);
}

/// Products of some rows with some columns, in tiles that fit the registers.
#[inline(always)]
fn multiply_floats<S: Simd, W: Row>(
    s: S,
    p: &Product<'_>,
    columns: &[Column],
    rows: Range<usize>,
    row: impl Fn([usize; 3]) -> W,
) {
    let w = |r: usize| row([r, p.at[0], p.at[1]]);
    let (mut r, mut c);
    r = rows.start;
    if S::WIDE {
        c = 0;
        if rows.len() == 8 {
            while c + 4 <= columns.len() {
                float_tile::<S, W, 4, 4>(s, p, &columns[c..], r, &w);
                float_tile::<S, W, 4, 4>(s, p, &columns[c..], r + 4, &w);
                c += 4;
            }
            while c < columns.len() {
                float_tile::<S, W, 8, 1>(s, p, &columns[c..], r, &w);
                c += 1;
            }
            return;
        }
    }
    while r + 2 <= rows.end {
        c = 0;
        while c + 2 <= columns.len() {
            float_tile::<S, W, 2, 2>(s, p, &columns[c..], r, &w);
            c += 2;
        }
        while c < columns.len() {
            float_tile::<S, W, 2, 1>(s, p, &columns[c..], r, &w);
            c += 1;
        }
        r += 2;
    }
    while r < rows.end {
        for c in 0..columns.len() {
            float_tile::<S, W, 1, 1>(s, p, &columns[c..], r, &w);
        }
        r += 1;
    }
}

/// `R` rows from `first` on times the first `C` columns: 16 partial sums each, along k in order, then their sum.
#[inline(always)]
fn float_tile<S: Simd, W: Row, const R: usize, const C: usize>(
    s: S,
    p: &Product<'_>,
    columns: &[Column],
    first: usize,
    row: &impl Fn(usize) -> W,
) {
    let k = p.w.ne[0];
    let n = k / LANES;
    let w: [W; R] = crate::simd::array(|r| row(first + r).bounded(k));
    let x: [&[f32]; C] = crate::simd::array(|c| &p.x.row(p.x.unravel(columns[c].x))[..k]);
    let x_vectors = x.map(|x| &x.as_chunks::<LANES>().0[..n]);
    let mut sums = [[s.zero(); C]; R];
    for i in 0..n {
        let x: [S::F; C] = crate::simd::array(|c| s.load(&x_vectors[c][i]));
        for r in 0..R {
            let w = w[r].vector(s, i);
            for c in 0..C {
                sums[r][c] = s.fma(w, x[c], sums[r][c]);
            }
        }
    }
    if !k.is_multiple_of(LANES) {
        for r in 0..R {
            let w = w[r].rest(s, n);
            for c in 0..C {
                sums[r][c] = s.fma(w, s.load_part(&x[c][n * LANES..]), sums[r][c]);
            }
        }
    }
    for c in 0..C {
        // SAFETY: these rows of w are this thread's alone.
        let y = unsafe { p.y.part_mut(p.y.unravel(columns[c].y), first..first + R) };
        for r in 0..R {
            y[r] = s.sum(sums[r][c]);
        }
    }
}

/// A row of float weights.
trait Row: Copy {
    /// The same row, known to the compiler to have `k` elements.
    fn bounded(self, k: usize) -> Self;
    /// Elements 16i..16i+16.
    fn vector<S: Simd>(self, s: S, i: usize) -> S::F;
    /// The last elements, fewer than 16, from 16i on.
    fn rest<S: Simd>(self, s: S, i: usize) -> S::F;
}

#[derive(Clone, Copy)]
struct F32Row<'a>(&'a [f32]);
#[derive(Clone, Copy)]
struct F16Row<'a>(&'a [u8]);
#[derive(Clone, Copy)]
struct Bf16Row<'a>(&'a [u8]);

impl Row for F32Row<'_> {
    #[inline(always)]
    fn bounded(self, k: usize) -> Self {
        F32Row(&self.0[..k])
    }
    #[inline(always)]
    fn vector<S: Simd>(self, s: S, i: usize) -> S::F {
        s.load(&self.0.as_chunks::<LANES>().0[i])
    }
    #[inline(always)]
    fn rest<S: Simd>(self, s: S, i: usize) -> S::F {
        s.load_part(&self.0[i * LANES..])
    }
}

impl Row for F16Row<'_> {
    #[inline(always)]
    fn bounded(self, k: usize) -> Self {
        F16Row(&self.0[..2 * k])
    }
    #[inline(always)]
    fn vector<S: Simd>(self, s: S, i: usize) -> S::F {
        s.load_f16(&self.0.as_chunks::<32>().0[i])
    }
    #[inline(always)]
    fn rest<S: Simd>(self, s: S, i: usize) -> S::F {
        s.load_f16(&padded(&self.0[i * 32..]))
    }
}

impl Row for Bf16Row<'_> {
    #[inline(always)]
    fn bounded(self, k: usize) -> Self {
        Bf16Row(&self.0[..2 * k])
    }
    #[inline(always)]
    fn vector<S: Simd>(self, s: S, i: usize) -> S::F {
        s.load_bf16(&self.0.as_chunks::<32>().0[i])
    }
    #[inline(always)]
    fn rest<S: Simd>(self, s: S, i: usize) -> S::F {
        s.load_bf16(&padded(&self.0[i * 32..]))
    }
}

#[inline(always)]
fn padded(bytes: &[u8]) -> [u8; 32] {
    let mut padded = [0; 32];
    padded[..bytes.len()].copy_from_slice(bytes);
    padded
}
