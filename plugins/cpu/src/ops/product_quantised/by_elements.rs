//! Products of matrices by columns with a few columns of activations that are mostly zeros, of formats whose elements are in one
//! byte each: elements for zeros are not read. Integer sums are exact in any order, and a group of zeros alone adds nothing, so
//! bits are those of the whole product.

use super::by_columns::non_zeros;
use crate::ops::output::Tile;
use crate::ops::product::{FEW_BY_ELEMENTS as FEW, Product};
use crate::quant::{ByColumns, Format, GROUP, MAX_GROUPS, Panel, Places, ROWS, RowsOf, XGroup};
use crate::scratch::Scratch;
use crate::simd::{LANES, Simd, array, prefetch};
use std::ops::Range;

/// Sums of a panel.
type Sums = [f32; LANES];

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

    // Of even blocks, and of odd ones: those of a block are found while the one before it is multiplied.
    let mut active = [[Active::NONE; FEW]; 2];
    for c in 0..n_columns {
        active[0][c].find::<F>(&x[c][..F::GROUPS], &places);
    }
    for (b, block) in p.w.bytes().chunks_exact(m * F::BLOCK_BYTES).enumerate() {
        let columns = ByColumns::of::<F>(block, m);
        let next = &mut active[(b + 1) % 2];
        for c in 0..n_columns {
            let following = &x[c][(b + 1) * F::GROUPS..];
            next[c].find::<F>(&following[..F::GROUPS.min(following.len())], &places);
            next[c].prefetch::<F>(block.as_ptr().wrapping_add(block.len()), &places);
        }
        let active = &active[b % 2];
        for (c, sums) in sums.chunks_exact_mut(n).enumerate() {
            let x = &x[c][b * F::GROUPS..][..F::GROUPS];
            match F::PLACES {
                Places::Nibbles { .. } => add_block::<S, F, 2>(s, columns, &active[c], x, rows.start, sums),
                _ => add_block::<S, F, 1>(s, columns, &active[c], x, rows.start, sums),
            }
        }
    }
    for (column, sums) in p.columns.iter().zip(sums.chunks_exact(n)) {
        let y = y.part(y.unravel(column.y), rows.clone());
        y.as_chunks_mut::<LANES>().0.copy_from_slice(sums);
    }
}

/// Adds the products of a block of the rows from `first` on with a column's groups to their sums: `P` panels at a time, as many
/// as share bytes.
#[inline(always)]
fn add_block<S: Simd, F: Format, const P: usize>(
    s: S,
    columns: ByColumns<'_>,
    active: &Active,
    x: &[XGroup],
    first: usize,
    sums: &mut [Sums],
) {
    let quads = &active.quads[..active.n];
    if quads.is_empty() {
        return;
    }
    let mask = s.splat_i(0x0f0f_0f0f);
    let mut groups = [[F::Group::ZERO; MAX_GROUPS]; P];
    for (i, sums) in sums.as_chunks_mut::<P>().0.iter_mut().enumerate() {
        let mut all = [[s.zero()]; P];
        for p in 0..P {
            all[p] = [s.load(&sums[p])];
            let rows = RowsOf { columns, first: first + (i * P + p) * ROWS };
            F::scales(s, rows, &mut groups[p][..F::GROUPS]);
        }
        let mut left = quads.iter().peekable();
        while let Some(quad) = left.next() {
            let g = usize::from(quad.group) % F::GROUPS;
            let x = &x[g];
            let mut dots = add_quad::<S, F, P>(s, columns, quad, i, mask, [F::Group::start(s, x, 0); P]);
            while let Some(more) = left.next_if(|next| next.group == quad.group) {
                dots = add_quad::<S, F, P>(s, columns, more, i, mask, dots);
            }
            let panels = array(|p| &groups[p][g]);
            let scales = F::Group::scales(s, panels, 0);
            all = F::Group::add_scaled(s, scales, [x], array(|p| [dots[p]]), all);
            all = F::Group::add_minima(s, panels, [x], all);
        }
        for p in 0..P {
            s.store(all[p][0], &mut sums[p]);
        }
    }
}

/// dots + the products of four elements of the `i`th panels.
#[inline(always)]
fn add_quad<S: Simd, F: Format, const P: usize>(
    s: S,
    columns: ByColumns<'_>,
    quad: &Quad,
    i: usize,
    mask: S::I,
    mut dots: [S::I; P],
) -> [S::I; P] {
    let x = s.splat_i(i32::from_le_bytes(quad.x));
    let column = |e: usize| -> &[u8; ROWS] {
        let bytes = columns.block.get(quad.at[e] as usize + i * ROWS..).and_then(|bytes| bytes.first_chunk());
        bytes.unwrap_or(&[0; ROWS]) // elements have all rows
    };
    let stored = s.zip4([column(0), column(1), column(2), column(3)]);
    for p in 0..P {
        let stored = match P {
            1 => stored,
            _ => s.and(s.shr(stored, 4 * p as u32), mask),
        };
        dots[p] = F::Group::add_quad(s, dots[p], F::integers(s, stored), x);
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
#[derive(Clone, Copy)]
struct Quad {
    group: u8,
    x: [u8; 4],
    /// Where the elements of the rows begin in the block.
    at: [u32; 4],
}

/// The elements of a block that a column multiplies with other numbers than zero, group by group.
#[derive(Clone, Copy)]
struct Active {
    /// The first `n` count.
    quads: [Quad; MAX_GROUPS * GROUP / 4],
    n: usize,
}

impl Active {
    const NONE: Active =
        Active { quads: [Quad { group: 0, x: [0; 4], at: [0; 4] }; MAX_GROUPS * GROUP / 4], n: 0 };

    /// Those of these groups.
    #[inline(always)]
    fn find<F: Format>(&mut self, x: &[XGroup], places: &InRows) {
        let InRows { m, rows } = places;
        self.n = 0;
        for (g, x) in x.iter().enumerate() {
            let mut left = non_zeros(x);
            let q = x.q.as_flattened();
            while left != 0 {
                let mut quad = Quad { group: g as u8, x: [0; 4], at: [0; 4] };
                for i in 0..4 {
                    quad.at[i] = quad.at[i.saturating_sub(1)];
                    if left != 0 {
                        let element = left.trailing_zeros() as usize;
                        let (byte, is_high) = F::PLACES.of(g * GROUP + element);
                        quad.at[i] = match F::PLACES {
                            Places::Nibbles { .. } => {
                                byte * m + usize::from(is_high) * (m / 2) + rows.start / 2
                            }
                            _ => byte * m + rows.start,
                        } as u32;
                        quad.x[i] = q[element];
                        left &= left - 1;
                    }
                }
                self.quads[self.n % self.quads.len()] = quad;
                self.n += 1;
            }
        }
    }

    /// Prefetches these elements of the rows, and their scales, of the block that begins at `at`.
    #[inline(always)]
    fn prefetch<F: Format>(&self, at: *const u8, places: &InRows) {
        if self.n == 0 {
            return;
        }
        let InRows { m, rows } = places;
        let lines = |start: usize, n: usize| {
            (0..n).step_by(64).for_each(|i| prefetch(at.wrapping_add(start + i)));
        };
        let head = F::PLACES.of(0).0;
        let size = if F::UNITS[0].0 == 2 { 2 } else { 1 };
        (0..head).step_by(size).for_each(|byte| lines(byte * m + rows.start * size, rows.len() * size));
        let n = if matches!(F::PLACES, Places::Nibbles { .. }) { rows.len() / 2 } else { rows.len() };
        for quad in &self.quads[..self.n] {
            let n_elements = quad.x.iter().filter(|x| **x != 0).count();
            quad.at[..n_elements].iter().for_each(|at| lines(*at as usize, n));
        }
    }
}
