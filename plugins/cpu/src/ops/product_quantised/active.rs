//! Which elements of blocks by columns are read: those that activations multiply with other numbers than zero.

use crate::quant::{ByColumns, Format, GROUP, MAX_GROUPS, Panel, Plane, XGroup, plane_of};
use crate::simd::{STRIP, lowest_bits, prefetch_all};
use bytemuck::{Pod, Zeroable};
use std::ops::Range;

/// Blocks that are multiplied together at most: four of 32 elements, or one of 256, so that sums are loaded and stored once
/// for them.
pub const fn at_once<F: Format>() -> usize {
    const { assert!(F::PLANES.len() <= 2 && F::GROUPS <= MAX_GROUPS) }
    if F::GROUPS == 1 { 4 } else { 1 }
}

/// Blocks of some rows of a matrix by columns.
#[derive(Clone, Copy)]
pub struct Blocks<'a> {
    /// Those of all rows, one after the other.
    pub bytes: &'a [u8],
    /// Rows of the matrix.
    pub m: usize,
    /// These.
    pub rows: &'a Range<usize>,
}

/// Four elements of a group; where fewer are left, the last ones are multiplied with zeros.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Quad {
    /// The group.
    pub group: u32,
    /// Activations for elements of the first half and of the second, if these have scales of their own; zeros for others.
    pub x: [[u8; 4]; 2],
    /// Strips in the blocks before those of the elements of the rows, in each plane.
    pub at: [[u32; 4]; 2],
}

/// The elements of some blocks that a column multiplies with other numbers than zero, group by group.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Active {
    quads: [Quad; MAX_GROUPS * GROUP / 4],
    /// The first `n` quads count.
    pub n: u32,
    /// A bit for each element of each group.
    elements: [u32; MAX_GROUPS],
}

impl Active {
    /// Those of these groups.
    #[inline(always)]
    pub fn find<F: Format>(&mut self, x: &[XGroup], blocks: &Blocks<'_>) {
        let rows = blocks.rows;
        (self.n, self.elements) = (0, [0; MAX_GROUPS]);
        for (g, x) in x.iter().enumerate() {
            let mut left = non_zeros(x);
            self.elements[g % MAX_GROUPS] = left;
            let q = x.q.as_flattened();
            while left != 0 {
                let mut quad = Quad { group: g as u32, x: [[0; 4]; 2], at: [[0; 4]; 2] };
                for i in 0..4 {
                    quad.at.iter_mut().for_each(|at| at[i] = at[i.saturating_sub(1)]);
                    if left != 0 {
                        let element = left.trailing_zeros() as usize;
                        for (plane, at) in F::PLANES.iter().zip(&mut quad.at) {
                            let column = blocks.column::<F>(plane, g, element);
                            at[i] = ((column + rows.start / plane.in_byte()) / STRIP) as u32;
                        }
                        quad.x[element * F::Group::HALVES / GROUP][i] = q[element];
                        left &= left - 1;
                    }
                }
                self.quads[self.n as usize % self.quads.len()] = quad;
                self.n += 1;
            }
        }
    }

    /// The elements, four by four.
    #[inline(always)]
    pub fn quads(&self) -> &[Quad] {
        &self.quads[..self.n as usize]
    }
}

impl<'a> Blocks<'a> {
    /// The blocks one by one.
    #[inline(always)]
    pub fn each<F: Format>(&self) -> impl Iterator<Item = ByColumns<'a>> {
        let m = self.m;
        self.bytes.chunks_exact(m * F::BLOCK_BYTES).map(move |block| ByColumns { block, m })
    }

    /// Where the column of an element of group `g` begins.
    #[inline(always)]
    fn column<F: Format>(&self, plane: &Plane, g: usize, element: usize) -> usize {
        let block = g / F::GROUPS * self.m * F::BLOCK_BYTES;
        block + plane.column(g % F::GROUPS * GROUP + element, self.m)
    }

    /// Prefetches share `i` of `n` of what these columns need: the scales of as many rows, and so many elements of all rows.
    #[inline(always)]
    pub fn prefetch_share<F: Format>(&self, columns: &[Active], i: usize, n: usize) {
        let Blocks { bytes, m, rows } = self;
        let lines = |start: usize, n: usize| {
            let start = bytes.as_ptr().addr() + start;
            prefetch_all(start..start + n);
        };
        if columns.iter().all(|column| column.n == 0) {
            return;
        }
        let share = |n_all: usize| n_all * i / n..n_all * (i + 1) / n;
        let some = share(rows.len());
        for block in (0..bytes.len()).step_by(m * F::BLOCK_BYTES) {
            let mut at = 0;
            for &(size, n) in F::UNITS {
                for _ in 0..n {
                    if plane_of(F::PLANES, at).is_none() {
                        lines(block + at * m + (rows.start + some.start) * size, some.len() * size);
                    }
                    at += size;
                }
            }
        }
        let some = share(GROUP);
        for g in 0..bytes.len() / (m * F::BLOCK_BYTES) * F::GROUPS {
            let all = columns.iter().fold(0, |all, column| all | column.elements[g]);
            let mut left = (u64::from(all) & ((1 << some.end) - (1 << some.start))) as u32;
            while left != 0 {
                let element = left.trailing_zeros() as usize;
                for plane in F::PLANES {
                    let n = plane.in_byte();
                    lines(self.column::<F>(plane, g, element) + rows.start / n, rows.len() / n);
                }
                left &= left - 1;
            }
        }
    }
}

/// The highest bit of each of eight bytes.
const HIGHEST: u64 = 0x8080_8080_8080_8080;

/// A bit for each element that is not zero; all of a group that is not finite.
pub fn non_zeros(x: &XGroup) -> u32 {
    if x.d.is_nan() {
        return u32::MAX;
    }
    let mut bits = 0;
    for (i, q) in x.q.as_flattened().as_chunks::<8>().0.iter().enumerate() {
        let q = u64::from_le_bytes(*q);
        // The highest bit of each byte that is not zero.
        let highest = (((q & !HIGHEST) + !HIGHEST) | q) & HIGHEST;
        bits |= u32::from(lowest_bits(highest >> 7)) << (8 * i);
    }
    bits
}
