//! Products of matrices by columns with a few columns of activations that are mostly zeros, of formats whose elements are in one
//! byte each: elements for zeros are not read. Integer sums are exact in any order, and a group of zeros alone adds nothing, so
//! bits are those of the whole product.

use crate::ops::output::Tile;
use crate::ops::product::{FEW_BY_ELEMENTS as FEW, Product};
use crate::quant::{ByColumns, Format, GROUP, MAX_GROUPS, Panel, ROWS, RowsOf, XGroup};
use crate::scratch::Scratch;
use crate::simd::{LANES, STRIP, Simd, array, prefetch};
use bytemuck::{Pod, Zeroable};
use std::ops::Range;

/// Sums of a panel.
type Sums = [f32; LANES];
/// Bytes that are prefetched before they are multiplied, and the most blocks that these may be of.
const AHEAD: usize = 16384;
const RING: usize = 8;
/// Panels of a strip.
const PANELS: usize = STRIP / ROWS;

/// Whether the columns are few, and have enough zeros: each is multiplied alone, where many share what is unpacked.
pub fn is_worth(p: &Product<'_>) -> bool {
    let n_columns = p.columns.len();
    // One in so many activations may count.
    let rare = match n_columns {
        0..=4 => return true,
        5..=8 => 2,
        9..=FEW => 4,
        _ => return false,
    };
    let n_groups = p.w.ne[0] / GROUP;
    let groups = p.columns.iter().flat_map(|column| &p.quantised[column.x * n_groups..][..n_groups]);
    let active: usize = groups.map(|x| non_zeros(x).count_ones() as usize).sum();
    active * rare <= n_columns * n_groups * GROUP
}

/// Rows of a matrix by columns times at most [`FEW`] columns, block by block.
#[inline(always)]
pub fn few_columns<S: Simd, F: Format>(
    s: S,
    p: &Product<'_>,
    y: &mut Tile<'_>,
    rows: &Range<usize>,
    scratch: &mut Scratch,
) {
    let (n_groups, m, n) = (p.w.ne[0] / GROUP, p.w.ne[1], rows.len() / ROWS);
    let n_columns = p.columns.len();
    let sums = scratch.sums.take::<Sums>(n * n_columns);
    sums.fill([0.0; LANES]);
    let x: [&[XGroup]; FEW] = array(|c| {
        let column = p.columns.get(c).map_or(&[][..], |column| &p.quantised[column.x * n_groups..]);
        &column[..n_groups.min(column.len())]
    });
    let places = InRows { m, rows: rows.clone() };

    let (blocks, n_blocks) = (p.w.bytes(), n_groups / F::GROUPS);
    let block_of = |b: usize| &blocks[b * m * F::BLOCK_BYTES..(b + 1) * m * F::BLOCK_BYTES];
    let active = scratch.panel.take::<Active>(RING * FEW);
    let (mut n_found, mut ahead) = (0, 0);
    for b in 0..n_blocks {
        while n_found < n_blocks.min(b + RING) && (ahead < AHEAD || n_found == b) {
            for (c, active) in active[n_found % RING * FEW..][..n_columns].iter_mut().enumerate() {
                active.find::<F>(&x[c][n_found * F::GROUPS..][..F::GROUPS], &places);
                ahead += active.prefetch::<F>(block_of(n_found).as_ptr(), &places);
            }
            n_found += 1;
        }
        let columns = ByColumns { block: block_of(b), m };
        let active = &active[b % RING * FEW..][..n_columns];
        for ((c, active), sums) in active.iter().enumerate().zip(sums.chunks_exact_mut(n)) {
            let x = &x[c][b * F::GROUPS..][..F::GROUPS];
            match F::PLACES.in_byte() {
                2 => add_block::<S, F, 2>(s, columns, active, x, rows.start, sums),
                _ => add_block::<S, F, 1>(s, columns, active, x, rows.start, sums),
            }
            ahead -= active.bytes as usize;
        }
    }
    for (column, sums) in p.columns.iter().zip(sums.chunks_exact(n)) {
        let y = y.part(y.unravel(column.y), rows.clone());
        y.as_chunks_mut::<LANES>().0.copy_from_slice(sums);
    }
}

/// Adds the products of a block of the rows from `first` on with a column's groups to their sums: a strip at a time, or the two
/// that share bytes.
#[inline(always)]
fn add_block<S: Simd, F: Format, const STRIPS: usize>(
    s: S,
    columns: ByColumns<'_>,
    active: &Active,
    x: &[XGroup],
    first: usize,
    sums: &mut [Sums],
) {
    let quads = &active.quads[..active.n as usize];
    if quads.is_empty() {
        return;
    }
    let mut groups = [F::Group::ZERO; MAX_GROUPS];
    let groups = &mut groups[..F::GROUPS];
    for (i, sums) in sums.as_chunks_mut::<PANELS>().0.chunks_exact_mut(STRIPS).enumerate() {
        let mut dots = [[[s.splat_i(0); PANELS]; STRIPS]; MAX_GROUPS];
        let mut begun = 0u32;
        for quad in quads {
            let g = quad.group as usize % F::GROUPS;
            if begun >> g & 1 == 0 {
                dots[g] = [[F::Group::start(s, &x[g], 0); PANELS]; STRIPS];
                begun |= 1 << g;
            }
            dots[g] = add_quad::<S, F, STRIPS>(s, columns, quad, i * STRIP, dots[g]);
        }
        for strip in 0..STRIPS {
            for panel in 0..PANELS {
                let row = first + (i * STRIPS + strip) * STRIP + panel * ROWS;
                F::scales(s, RowsOf { columns, first: row }, groups);
                let mut all = [[s.load(&sums[strip][panel])]];
                for g in 0..F::GROUPS {
                    if begun >> g & 1 != 0 {
                        let scales = F::Group::scales(s, [&groups[g]], 0);
                        all = F::Group::add_scaled(s, scales, [&x[g]], [[dots[g][strip][panel]]], all);
                        all = F::Group::add_minima(s, [&groups[g]], [&x[g]], all);
                    }
                }
                s.store(all[0][0], &mut sums[strip][panel]);
            }
        }
    }
}

/// dots + the products of four elements, of the strips that begin `at` bytes after where the columns do.
#[inline(always)]
fn add_quad<S: Simd, F: Format, const STRIPS: usize>(
    s: S,
    columns: ByColumns<'_>,
    quad: &Quad,
    at: usize,
    mut dots: [[S::I; PANELS]; STRIPS],
) -> [[S::I; PANELS]; STRIPS] {
    let (x, mask) = (s.splat_i(i32::from_le_bytes(quad.x)), s.splat_i(0x0f0f_0f0f));
    let of_quad = array(|e| columns.strip(quad.at[e] as usize + at));
    for panel in 0..PANELS {
        let bytes = s.zip_strip(of_quad, panel);
        for strip in 0..STRIPS {
            let stored = match (STRIPS, strip) {
                (1, _) => bytes,
                (_, 0) => s.and(bytes, mask),
                _ => s.and(s.shr(bytes, 4), mask),
            };
            dots[strip][panel] = F::Group::add_quad(s, dots[strip][panel], F::integers(s, stored), x);
        }
    }
    dots
}

/// Rows of a matrix by columns.
struct InRows {
    /// Rows of the matrix.
    m: usize,
    rows: Range<usize>,
}

/// Four elements of a group; where fewer are left, the last ones are multiplied with zeros.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Quad {
    group: u32,
    x: [u8; 4],
    /// Where the elements of the rows begin in the block.
    at: [u32; 4],
}

/// The elements of a block that a column multiplies with other numbers than zero, group by group.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Active {
    /// The first `n` count.
    quads: [Quad; MAX_GROUPS * GROUP / 4],
    n: u32,
    /// Bytes that are read for them.
    bytes: u32,
}

impl Active {
    /// Those of these groups.
    #[inline(always)]
    fn find<F: Format>(&mut self, x: &[XGroup], places: &InRows) {
        let InRows { m, rows } = places;
        self.n = 0;
        for (g, x) in x.iter().enumerate() {
            let mut left = non_zeros(x);
            let q = x.q.as_flattened();
            while left != 0 {
                let mut quad = Quad { group: g as u32, x: [0; 4], at: [0; 4] };
                for i in 0..4 {
                    quad.at[i] = quad.at[i.saturating_sub(1)];
                    if left != 0 {
                        let element = left.trailing_zeros() as usize;
                        let column = F::PLACES.column(g * GROUP + element, *m);
                        quad.at[i] = (column + rows.start / F::PLACES.in_byte()) as u32;
                        quad.x[i] = q[element];
                        left &= left - 1;
                    }
                }
                self.quads[self.n as usize % self.quads.len()] = quad;
                self.n += 1;
            }
        }
    }

    /// Prefetches these elements of the rows, and their scales, of the block that begins at `at`; how many bytes.
    #[inline(always)]
    fn prefetch<F: Format>(&mut self, at: *const u8, places: &InRows) -> usize {
        self.bytes = 0;
        if self.n == 0 {
            return 0;
        }
        let InRows { m, rows } = places;
        let mut lines = |start: usize, n: usize| {
            (0..n).step_by(64).for_each(|i| prefetch(at.wrapping_add(start + i)));
            self.bytes += n as u32;
        };
        let head = F::PLACES.of(0).0;
        let size = if F::UNITS[0].0 == 2 { 2 } else { 1 };
        (0..head).step_by(size).for_each(|byte| lines(byte * m + rows.start * size, rows.len() * size));
        for quad in &self.quads[..self.n as usize] {
            let n_elements = quad.x.iter().filter(|x| **x != 0).count();
            quad.at[..n_elements].iter().for_each(|at| lines(*at as usize, rows.len() / F::PLACES.in_byte()));
        }
        self.bytes as usize
    }
}

/// The highest bit of each of eight bytes.
const HIGHEST: u64 = 0x8080_8080_8080_8080;

/// A bit for each element that is not zero; all of a group that is not finite.
fn non_zeros(x: &XGroup) -> u32 {
    if x.d.is_nan() {
        return u32::MAX;
    }
    let mut bits = 0;
    for (i, q) in x.q.as_flattened().as_chunks::<8>().0.iter().enumerate() {
        let q = u64::from_le_bytes(*q);
        // The highest bit of each byte that is not zero, then these eight next to each other.
        let highest = (((q & !HIGHEST) + !HIGHEST) | q) & HIGHEST;
        bits |= ((highest >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56 << (8 * i)) as u32;
    }
    bits
}
