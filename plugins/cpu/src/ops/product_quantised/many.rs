//! Panels times many columns: unpacked, and used for all of them.

use super::ahead::{NextColumns, NextRows};
use super::columns::in_sixes;
use super::form::{Columns, Form};
use crate::ops::output::Tile;
use crate::ops::product::{NextPanels, Product, write_out};
use crate::quant::{Anywhere, ByColumns, Format, Multiply, ROWS, SideBySide, turn};
use crate::scratch::{Arena, Scratch};
use crate::simd::{LANES, Simd, array};
use std::ops::Range;

/// Rows in any layout, `P` panels at a time, times columns whose next groups stay in the second cache while the rows pass.
#[inline(always)]
pub fn many_columns<S: Simd, M: Form, const P: usize>(
    s: S,
    p: &Product<'_>,
    y: &mut Tile<'_>,
    rows: &Range<usize>,
    scratch: &mut Scratch,
) {
    let (n_groups, n_columns) = (p.w.ne[0] / crate::quant::GROUP, p.columns.len());
    let chunk = M::UNPACKED / P;
    let panels = scratch.panel.take::<M::Group>(M::UNPACKED);
    let mut held = p.w.columns.is_some().then(|| Turn::new::<M::Format>(chunk, &mut scratch.rows));
    let sums = scratch.sums.take::<[f32; LANES]>(rows.len().div_ceil(P * ROWS) * P * n_columns);
    sums.fill([0.0; LANES]);
    for start in (0..n_groups).step_by(chunk) {
        let groups = start..(start + chunk).min(n_groups);
        let x = M::columns(s, p, &groups, &mut scratch.activations);
        held.iter_mut().for_each(|held| held.rows = 0..0);
        for (first, sums) in rows.clone().step_by(P * ROWS).zip(sums.chunks_exact_mut(P * n_columns)) {
            // Panels past the last row keep their contents; their sums are not read.
            for (first, panel) in (first..rows.end).step_by(ROWS).zip(panels.chunks_exact_mut(chunk)) {
                let n_rows = ROWS.min(rows.end - first);
                let next = match first + ROWS < rows.end {
                    true => (first + ROWS..rows.end, groups.clone()),
                    false => (rows.clone(), groups.end..(groups.end + chunk).min(n_groups)),
                };
                let panel = &mut panel[..groups.len()];
                match &mut held {
                    Some(held) => held.unpack::<S, M>(s, p, rows, first, &groups, panel),
                    None => unpack::<S, M>(s, p, first..first + n_rows, groups.clone(), panel, next),
                }
            }
            let panels = array(|i| &panels[i * chunk..][..groups.len()]);
            let bytes = |groups: usize| groups / M::Format::GROUPS * ROWS * M::Format::BLOCK_BYTES;
            let next = NextPanels::of(p, rows, first, &(bytes(groups.start)..bytes(groups.end)));
            multiply::<S, M, P>(s, &x, panels, next, sums);
        }
    }
    write_out(s, y, p.columns, rows, sums, n_columns);
}

/// Unpacks groups of these rows, at most 16, and prefetches those that are next.
#[inline(always)]
fn unpack<S: Simd, M: Form>(
    s: S,
    p: &Product<'_>,
    rows: Range<usize>,
    groups: Range<usize>,
    out: &mut [M::Group],
    next: (Range<usize>, Range<usize>),
) {
    let (block, each) = (M::Format::BLOCK_BYTES, M::Format::GROUPS);
    if let Some(panel) = p.w.panel([rows.start, p.at[0], p.at[1]]) {
        for (b, out) in (groups.start / each..).zip(out.chunks_exact_mut(each)) {
            M::unpack(s, SideBySide(&panel[b * ROWS * block..][..ROWS * block]), out);
        }
        return;
    }
    let these = p.row_set(rows.start, rows.len());
    let ahead = NextRows::of::<M::Format>(&p.row_set(next.0.start, next.0.len().min(ROWS)), &next.1);
    for (b, out) in out.chunks_exact_mut(each).enumerate() {
        ahead.prefetch_step(b);
        M::unpack(s, Anywhere { rows: &these, at: (groups.start / each + b) * block }, out);
    }
}

/// Rows of a matrix by columns that share bytes, side by side.
struct Turn<'a> {
    /// Groups of each panel's rows, one panel after the other.
    panels: &'a mut [u8],
    /// Which rows they are.
    rows: Range<usize>,
}

impl<'a> Turn<'a> {
    /// None yet; with room for so many groups.
    fn new<F: Format>(groups: usize, room: &'a mut Arena) -> Turn<'a> {
        Turn { panels: room.take(groups / F::GROUPS * F::BLOCK_BYTES * turn::<F>()), rows: 0..0 }
    }

    /// Unpacks groups of 16 of `rows`. Nothing is prefetched: strips are far apart, so that it takes longer than to wait for them.
    #[inline(always)]
    fn unpack<S: Simd, M: Form>(
        &mut self,
        s: S,
        p: &Product<'_>,
        rows: &Range<usize>,
        first: usize,
        groups: &Range<usize>,
        out: &mut [M::Group],
    ) {
        let (block, each, n_rows) = (M::Format::BLOCK_BYTES, M::Format::GROUPS, turn::<M::Format>());
        let (m, stride) = (p.w.ne[1], self.panels.len() / n_rows * ROWS);
        let start = first / n_rows * n_rows;
        if !self.rows.contains(&first) {
            self.rows = start.max(rows.start)..(start + n_rows).min(rows.end);
            let blocks = p.w.bytes()[groups.start / each * block * m..].chunks_exact(block * m);
            for (b, block) in blocks.take(groups.len() / each).enumerate() {
                let panels = &mut self.panels[b * ROWS * M::Format::BLOCK_BYTES..];
                ByColumns { block, m }.side_by_side::<S, M::Format>(s, &self.rows, panels, stride);
            }
        }
        let panel = &self.panels[(first - start) / ROWS * stride..][..stride];
        for (block, out) in panel.chunks_exact(ROWS * block).zip(out.chunks_exact_mut(each)) {
            M::unpack(s, SideBySide(block), out);
        }
    }
}

/// Adds the products of panels with all columns to their sums.
#[inline(always)]
fn multiply<S: Simd, M: Form, const P: usize>(
    s: S,
    x: &Columns<'_, M::X>,
    panels: [&[M::Group]; P],
    next: NextPanels<P>,
    sums: &mut [[f32; LANES]],
) {
    let n = x.len();
    let mut done = 0;
    if S::WIDE {
        done = tiles::<S, M, P, 6>(s, x, panels, next, sums, 0..in_sixes(n));
    }
    if S::TILED {
        done = tiles::<S, M, P, 4>(s, x, panels, next, sums, done..n);
    }
    if S::TILED && !S::WIDE {
        done = tiles::<S, M, P, 2>(s, x, panels, next, sums, done..n);
    }
    tiles::<S, M, P, 1>(s, x, panels, next, sums, done..n);
}

/// As many tiles of `C` columns as these columns are; the first column that is left.
#[inline(always)]
fn tiles<S: Simd, M: Form, const P: usize, const C: usize>(
    s: S,
    x: &Columns<'_, M::X>,
    panels: [&[M::Group]; P],
    next: NextPanels<P>,
    sums: &mut [[f32; LANES]],
    columns: Range<usize>,
) -> usize {
    let (n_columns, n_groups) = (x.len(), panels[0].len());
    let distance = x.distance(C);
    let mut done = columns.start;
    while done + C <= columns.end {
        let x = array(|c| x.column(done + c));
        let ahead = (NextColumns { x, distance }, next.share(done..done + C, n_columns, n_groups));
        let mut all = [[s.zero(); C]; P];
        for i in 0..P {
            for c in 0..C {
                all[i][c] = s.load(&sums[i * n_columns + done + c]);
            }
        }
        all = M::Group::add_products::<S, P, C>(s, panels, x, ahead, all);
        for i in 0..P {
            for c in 0..C {
                s.store(all[i][c], &mut sums[i * n_columns + done + c]);
            }
        }
        done += C;
    }
    done
}
