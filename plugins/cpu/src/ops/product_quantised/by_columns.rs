//! Products of matrices by columns with few columns of activations that are mostly zeros: bytes that meet zeros alone are not
//! read. They count as zeros, whose products are added as all others are, so bits are those of the whole product.

use crate::ops::output::Tile;
use crate::ops::product::Product;
use crate::quant::uses::{self, Elements};
use crate::quant::{ByColumns, Format, GROUP, MAX_GROUPS, Multiply, NeededColumns, Panel, ROWS, XGroup};
use crate::scratch::Scratch;
use crate::simd::{LANES, Simd, array, prefetch};
use std::ops::Range;

/// Bytes of the largest block.
const MAX_BYTES: usize = 256;

/// Rows of a matrix by columns times at most `C` columns, block by block.
#[inline(always)]
pub fn few_columns<S: Simd, F: Format, const C: usize>(
    s: S,
    p: &Product<'_>,
    y: &mut Tile<'_>,
    rows: &Range<usize>,
    uses: &[Elements],
    scratch: &mut Scratch,
) {
    let (n_groups, m) = (p.w.ne[0] / GROUP, p.w.ne[1]);
    let last = p.columns.len() - 1;
    let x: [&[XGroup]; C] = array(|c| &p.quantised[p.columns[c.min(last)].x * n_groups..][..n_groups]);
    let sums = scratch.sums.take::<[f32; LANES]>(rows.len() / ROWS * C);
    sums.fill([0.0; LANES]);
    let mut groups = [F::Group::ZERO; MAX_GROUPS];
    let groups = &mut groups[..F::GROUPS];

    let of_block = |b: usize| array(|c| &x[c][b * F::GROUPS..][..F::GROUPS]);
    let mut next = Needed::of::<F, C>(uses, of_block(0));
    for (b, block) in p.w.bytes().chunks_exact(m * F::BLOCK_BYTES).enumerate() {
        let needed = next;
        let is_last = (b + 1) * F::GROUPS >= n_groups;
        next = if is_last { Needed::NONE } else { Needed::of::<F, C>(uses, of_block(b + 1)) };
        if needed.n == 0 {
            next.prefetch::<F>(block.as_ptr().wrapping_add(block.len()), m, rows.clone());
            continue;
        }
        let x = of_block(b);
        for (i, sums) in sums.chunks_exact_mut(C).enumerate() {
            let first = rows.start + i * ROWS;
            if i % 4 == 0 {
                let end = rows.end.min(first + 4 * ROWS);
                next.prefetch::<F>(block.as_ptr().wrapping_add(block.len()), m, first..end);
            }
            let columns = ByColumns { block, m, first };
            F::unpack(s, NeededColumns { columns, needed: &needed.bytes }, groups);
            let mut all = [[s.zero(); C]];
            for c in 0..C {
                all[0][c] = s.load(&sums[c]);
            }
            all = F::Group::add_products::<S, 1, C>(s, [groups], x, (), all);
            for c in 0..C {
                s.store(all[0][c], &mut sums[c]);
            }
        }
    }
    for (c, column) in p.columns.iter().enumerate() {
        let y = y.part(y.unravel(column.y), rows.clone());
        y.as_chunks_mut::<LANES>().0.iter_mut().zip(sums.chunks_exact(C)).for_each(|(y, sums)| *y = sums[c]);
    }
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

    /// Those of elements that meet numbers other than zero in any column.
    #[inline(always)]
    fn of<F: Format, const C: usize>(uses: &[Elements], x: [&[XGroup]; C]) -> Needed {
        let mut active = [0; 8];
        for x in x {
            for (active, group) in active.iter_mut().zip(x) {
                *active |= non_zeros(group);
            }
        }
        let mut needed = Needed::NONE;
        if active == [0; 8] {
            return needed;
        }
        for (byte, uses) in needed.bytes.iter_mut().zip(uses) {
            *byte = uses::overlap(uses, &active).into();
        }
        let mut at = 0;
        for &(size, n) in F::UNITS {
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
    #[inline(always)]
    fn prefetch<F: Format>(&self, at: *const u8, m: usize, rows: Range<usize>) {
        for (byte, size) in &self.list[..self.n] {
            let (byte, size) = (usize::from(*byte), usize::from(*size));
            let line = at.wrapping_add(byte * m + rows.start * size);
            (0..rows.len() * size).step_by(64).for_each(|i| prefetch(line.wrapping_add(i)));
        }
    }
}

/// A bit for each element that is not zero; all of a group that is not finite.
#[inline(always)]
fn non_zeros(x: &XGroup) -> u32 {
    if x.d.is_nan() {
        return u32::MAX;
    }
    let mut bits = 0;
    for (i, q) in x.q.as_flattened().iter().enumerate() {
        bits |= u32::from(*q != 0) << i;
    }
    bits
}
