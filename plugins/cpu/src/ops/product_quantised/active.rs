//! Which elements of a block by columns are read: those that activations multiply with other numbers than zero.

use crate::quant::{Format, GROUP, MAX_GROUPS, Panel, XGroup, plane_of};
use crate::simd::prefetch;
use bytemuck::{Pod, Zeroable};
use std::ops::Range;

/// A block of some rows of a matrix by columns.
pub struct Block<'a> {
    /// That of all rows.
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
    /// Where the elements of the rows begin in the block, in each plane.
    pub at: [[u32; 4]; 2],
}

/// The elements of a block that a column multiplies with other numbers than zero, group by group.
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
    pub fn find<F: Format>(&mut self, x: &[XGroup], block: &Block<'_>) {
        self.n = 0;
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
                            let column = plane.column(g * GROUP + element, block.m);
                            at[i] = (column + block.rows.start / plane.in_byte()) as u32;
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

impl Block<'_> {
    /// Prefetches share `i` of `n` of what these columns need: the scales of as many rows, and so many elements of all rows.
    #[inline(always)]
    pub fn prefetch_share<F: Format>(&self, columns: &[Active], i: usize, n: usize) {
        let Block { bytes, m, rows } = self;
        let lines = |start: usize, n: usize| {
            (0..n).step_by(64).for_each(|line| prefetch(bytes.as_ptr().wrapping_add(start + line)));
        };
        if columns.iter().all(|column| column.n == 0) {
            return;
        }
        let share = |n_all: usize| n_all * i / n..n_all * (i + 1) / n;
        let (some, mut at) = (share(rows.len()), 0);
        for &(size, n) in F::UNITS {
            for _ in 0..n {
                if plane_of(F::PLANES, at).is_none() {
                    lines(at * m + (rows.start + some.start) * size, some.len() * size);
                }
                at += size;
            }
        }
        let some = share(GROUP);
        for g in 0..F::GROUPS {
            let all = columns.iter().fold(0, |all, column| all | column.elements[g]);
            let mut left = (u64::from(all) & ((1 << some.end) - (1 << some.start))) as u32;
            while left != 0 {
                let element = g * GROUP + left.trailing_zeros() as usize;
                for plane in F::PLANES {
                    let n = plane.in_byte();
                    lines(plane.column(element, *m) + rows.start / n, rows.len() / n);
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
        // The highest bit of each byte that is not zero, then these eight next to each other.
        let highest = (((q & !HIGHEST) + !HIGHEST) | q) & HIGHEST;
        bits |= ((highest >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56 << (8 * i)) as u32;
    }
    bits
}
