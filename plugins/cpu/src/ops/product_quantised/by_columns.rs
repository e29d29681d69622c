//! Products of matrices by columns with one column of activations that are mostly zeros, of formats whose elements are in
//! several bytes: bytes for zeros alone are not read. They count as zeros, whose products are added as all others are, so bits
//! are those of the whole product.

use crate::ops::output::Tile;
use crate::ops::product::Product;
use crate::quant::uses::{self, Elements};
use crate::quant::{ByColumns, Format, GROUP, MAX_GROUPS, Multiply, Panel, ROWS, SideBySide, XGroup};
use crate::scratch::Scratch;
use crate::simd::{LANES, Simd, prefetch};
use std::ops::Range;

/// Bytes of the largest block.
const MAX_BYTES: usize = 256;

/// Rows of a matrix by columns times one column, block by block.
#[inline(always)]
pub fn one_column<S: Simd, F: Format>(
    s: S,
    p: &Product<'_>,
    y: &mut Tile<'_>,
    rows: &Range<usize>,
    uses: &[Elements],
    scratch: &mut Scratch,
) {
    let (n_groups, m) = (p.w.ne[0] / GROUP, p.w.ne[1]);
    let x = &p.quantised[p.columns[0].x * n_groups..][..n_groups];
    let sums = scratch.sums.take::<[f32; LANES]>(rows.len() / ROWS);
    sums.fill([0.0; LANES]);
    let panel = scratch.rows.take::<u8>(ROWS * F::BLOCK_BYTES);
    let mut groups = [F::Group::ZERO; MAX_GROUPS];
    let groups = &mut groups[..F::GROUPS];

    let mut steps = x.chunks_exact(F::GROUPS);
    let mut next = steps.next().map_or(Needed::NONE, |x| Needed::of(F::UNITS, uses, x));
    let blocks = p.w.bytes().chunks_exact(m * F::BLOCK_BYTES).zip(x.chunks_exact(F::GROUPS));
    for (block, x) in blocks {
        let needed = next;
        next = steps.next().map_or(Needed::NONE, |x| Needed::of(F::UNITS, uses, x));
        let after = block.as_ptr().wrapping_add(block.len());
        if needed.n == 0 {
            next.prefetch(after, m, rows.clone());
            continue;
        }
        let columns = ByColumns::of::<F>(block, m);
        for (i, sums) in sums.iter_mut().enumerate() {
            let first = rows.start + i * ROWS;
            if i % 4 == 0 {
                next.prefetch(after, m, first..rows.end.min(first + 4 * ROWS));
            }
            columns.side_by_side(s, first, Some(&needed.bytes), panel);
            F::unpack(s, SideBySide(panel), groups);
            let all = F::Group::add_products::<S, 1, 1>(s, [groups], [x], (), [[s.load(sums)]]);
            s.store(all[0][0], sums);
        }
    }
    let y = y.part(y.unravel(p.columns[0].y), rows.clone());
    y.as_chunks_mut::<LANES>().0.copy_from_slice(sums);
}

/// The bytes of a block that are needed.
#[derive(Clone, Copy)]
struct Needed {
    /// 1 for those.
    bytes: [u8; MAX_BYTES],
    /// First bytes and sizes of the units with such bytes, the first `n`.
    list: [(u8, u8); MAX_BYTES],
    n: usize,
}

impl Needed {
    const NONE: Needed = Needed { bytes: [0; MAX_BYTES], list: [(0, 0); MAX_BYTES], n: 0 };

    /// Those of elements that are multiplied with numbers other than zero.
    fn of(units: &[(usize, usize)], uses: &[Elements], x: &[XGroup]) -> Needed {
        let mut active = [0; 8];
        active.iter_mut().zip(x).for_each(|(active, group)| *active = non_zeros(group));
        let mut needed = Needed::NONE;
        if active == [0; 8] {
            return needed;
        }
        for (byte, uses) in needed.bytes.iter_mut().zip(uses) {
            *byte = uses::overlap(uses, &active).into();
        }
        let mut at = 0;
        for &(size, n) in units {
            let end = at + size * n;
            let size = if size == 2 { 2 } else { 1 };
            for at in (at..end).step_by(size) {
                needed.list[needed.n] = (at as u8, size as u8);
                needed.n += usize::from(needed.bytes[at] != 0);
            }
            at = end;
        }
        needed
    }

    /// Prefetches the bytes of these rows, of the block that begins at `at`.
    fn prefetch(&self, at: *const u8, m: usize, rows: Range<usize>) {
        for (byte, size) in &self.list[..self.n] {
            let (byte, size) = (usize::from(*byte), usize::from(*size));
            let line = at.wrapping_add(byte * m + rows.start * size);
            (0..rows.len() * size).step_by(64).for_each(|i| prefetch(line.wrapping_add(i)));
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
        let highest = ((q & !HIGHEST) + !HIGHEST | q) & HIGHEST;
        bits |= ((highest >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56 << (8 * i)) as u32;
    }
    bits
}
