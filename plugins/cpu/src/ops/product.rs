//! Rows of one weight matrix times chosen columns: what `mul_mat` and `mul_mat_id` are made of.
//!
//! Quantised weights are multiplied here, others in [`super::product_floats`]. The order of each sum depends on k alone, so one column gives the same bits as many.

use super::{Worker, product_floats};
use crate::quant::{Format, MAX_GROUPS, Panel, ROWS, RowByRow, SideBySide, XGroup, with_format};
use crate::scratch::{Arena, Scratch};
use crate::simd::{Isa, LANES, Simd, array, dispatch};
use crate::tensor::Tensor;
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
    with_format!(p.w.dtype, F => quantised::<F>(isa, p, rows, scratch), else product_floats::floats(isa, p, rows, scratch))
}

dispatch! {
    fn quantised<F: Format>(p: &Product<'_>, rows: Range<usize>, scratch: &mut Scratch) = quantised_with;
}

/// Groups unpacked at a time: what stays in the first cache beside the columns.
const CHUNK: usize = 32;
/// Columns at a time: so many groups of them stay in the second cache.
const COLUMNS: usize = 256;

#[inline(always)]
fn quantised_with<S: Simd, F: Format>(s: S, p: &Product<'_>, mut rows: Range<usize>, scratch: &mut Scratch) {
    rows.start = match p.columns.len() {
        0 => rows.start,
        1 => few_columns::<S, F, 1>(s, p, &rows),
        2 => few_columns::<S, F, 2>(s, p, &rows),
        3..=4 if S::WIDE => few_columns::<S, F, 4>(s, p, &rows),
        5..=8 if S::WIDE => few_columns::<S, F, 8>(s, p, &rows),
        _ => rows.start,
    };
    if !rows.is_empty() {
        for columns in p.columns.chunks(COLUMNS) {
            many_columns::<S, F>(s, &Product { columns, ..*p }, &rows, scratch);
        }
    }
}

/// Rows in any layout times columns whose next groups stay in the second cache while the rows pass.
#[inline(always)]
fn many_columns<S: Simd, F: Format>(s: S, p: &Product<'_>, rows: &Range<usize>, scratch: &mut Scratch) {
    let n_groups = p.w.ne[0] / crate::quant::GROUP;
    let panel = scratch.panel.take::<F::Group>(CHUNK);
    let sums = scratch.sums.take::<[f32; LANES]>(rows.len().div_ceil(ROWS) * p.columns.len());
    sums.fill([0.0; LANES]);
    for start in (0..n_groups).step_by(CHUNK) {
        let groups = start..(start + CHUNK).min(n_groups);
        let panel = &mut panel[..groups.len()];
        for (first, sums) in rows.clone().step_by(ROWS).zip(sums.chunks_exact_mut(p.columns.len())) {
            let n_rows = ROWS.min(rows.end - first);
            let ahead = match first + ROWS < rows.end {
                true => Ahead::of::<F>(p, first + ROWS, groups.clone()),
                false => Ahead::of::<F>(p, rows.start, groups.end..(groups.end + CHUNK).min(n_groups)),
            };
            unpack::<S, F>(s, p, first, n_rows, groups.clone(), panel, &mut scratch.rows, &ahead);
            multiply::<S, F>(s, p, n_groups, &groups, panel, sums);
        }
    }
    for (first, sums) in rows.clone().step_by(ROWS).zip(sums.chunks_exact(p.columns.len())) {
        let n_rows = ROWS.min(rows.end - first);
        for (column, sums) in p.columns.iter().zip(sums) {
            // SAFETY: these rows of w are this thread's alone.
            let y = unsafe { p.y.part_mut(p.y.unravel(column.y), first..first + n_rows) };
            y.copy_from_slice(&sums[..n_rows]);
        }
    }
}

/// Sealed panels times at most `C` columns, block by block as memory brings them; the first row that is left.
#[inline(always)]
fn few_columns<S: Simd, F: Format, const C: usize>(s: S, p: &Product<'_>, rows: &Range<usize>) -> usize {
    let n_groups = p.w.ne[0] / crate::quant::GROUP;
    let last = p.columns.len() - 1;
    let x: [&[XGroup]; C] = array(|c| &p.quantised[p.columns[c.min(last)].x * n_groups..][..n_groups]);
    let mut groups = [F::Group::ZERO; MAX_GROUPS];
    let groups = &mut groups[..F::GROUPS];
    let mut first = rows.start;
    while first + ROWS <= rows.end
        && let Some(panel) = p.w.panel([first, p.at[0], p.at[1]])
    {
        let mut sums = [s.zero(); C];
        for (i, block) in panel.chunks_exact(ROWS * F::DTYPE.block_bytes()).enumerate() {
            unpack_panel::<S, F>(s, block, groups);
            let x = array(|c: usize| &x[c][i * F::GROUPS..][..F::GROUPS]);
            sums = F::Group::add_products::<S, C>(s, groups, x, sums);
        }
        for (column, sum) in p.columns.iter().zip(sums) {
            // SAFETY: these rows of w are this thread's alone.
            let y = unsafe { p.y.part_mut(p.y.unravel(column.y), first..first + ROWS) };
            y.as_chunks_mut().0.iter_mut().for_each(|y| s.store(sum, y));
        }
        first += ROWS;
    }
    first
}

/// Unpacks a block of a sealed panel, asking for what lies behind it.
#[inline(always)]
fn unpack_panel<S: Simd, F: Format>(s: S, block: &[u8], out: &mut [F::Group]) {
    for line in (0..block.len()).step_by(64) {
        s.prefetch(block.as_ptr().wrapping_add(AHEAD + line));
    }
    F::unpack(s, SideBySide(block), out);
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
    ahead: &Ahead,
) {
    let block = F::DTYPE.block_bytes();
    let n_bytes = groups.len() / F::GROUPS * block;
    if let Some(panel) = p.w.panel([first, p.at[0], p.at[1]]) {
        let blocks = panel[ROWS * block * (groups.start / F::GROUPS)..].chunks_exact(ROWS * block);
        for (block, out) in blocks.zip(out.chunks_exact_mut(F::GROUPS)) {
            unpack_panel::<S, F>(s, block, out);
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
        ahead.ask(s, b, n_blocks);
        F::unpack(s, RowByRow { bytes: &bytes[b * block..], stride }, out);
    }
}

/// How far ahead of itself a panel's one stream is asked for, in bytes: memory answers in time, and the first cache still
/// has room for the columns.
pub const AHEAD: usize = 8192;

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
    groups: &Range<usize>,
    panel: &[F::Group],
    sums: &mut [[f32; LANES]],
) {
    let mut done = 0;
    if S::WIDE && F::Group::HALVES == 1 {
        done = tiles::<S, F, 12>(s, p, n_groups, groups, panel, sums, done);
    }
    if S::WIDE && F::Group::HALVES == 2 {
        done = tiles::<S, F, 6>(s, p, n_groups, groups, panel, sums, done);
    }
    done = tiles::<S, F, 4>(s, p, n_groups, groups, panel, sums, done);
    if !S::WIDE {
        done = tiles::<S, F, 2>(s, p, n_groups, groups, panel, sums, done);
    }
    tiles::<S, F, 1>(s, p, n_groups, groups, panel, sums, done);
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
        let x = array(|c| &p.quantised[p.columns[done + c].x * n_groups..][groups.clone()]);
        let added = F::Group::add_products::<S, C>(s, panel, x, array(|c| s.load(&sums[c])));
        sums.iter_mut().zip(added).for_each(|(to, sum)| s.store(sum, to));
        done += C;
    }
    done
}
