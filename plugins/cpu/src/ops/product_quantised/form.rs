//! What weights and columns are multiplied as: bytes, or words of 16 bits.

use crate::ops::Column;
use crate::ops::product::Product;
use crate::quant::{Format, MAX_GROUPS, Multiply, Panel, Rows, WordGroup, XGroup, XWords};
use crate::scratch::Arena;
use crate::simd::Simd;
use std::marker::PhantomData;
use std::ops::Range;

/// What weights of a format and columns are multiplied as.
pub trait Form {
    /// Of the weights.
    type Format: Format;
    /// 16 rows of weights.
    type Group: Multiply<X = Self::X>;
    /// A group of a column.
    type X: bytemuck::Pod;
    /// Groups unpacked at a time, of all panels side by side: what stays in the first cache beside the columns.
    const UNPACKED: usize;

    /// Unpacks one block of each of 16 rows.
    fn unpack<S: Simd>(s: S, rows: impl Rows, out: &mut [Self::Group]);
    /// Groups of a product's columns, in `room` if they are converted.
    fn columns<'a, S: Simd>(
        s: S,
        p: &Product<'a>,
        groups: &Range<usize>,
        room: &'a mut Arena,
    ) -> Columns<'a, Self::X>;
}

/// Groups of columns.
pub struct Columns<'a, X> {
    all: &'a [X],
    /// The product's columns, and whether `all` has theirs one after the other rather than by [`Column::x`].
    rows: &'a [Column],
    is_in_order: bool,
    /// Groups of a row of `all`, and those that are used.
    n_groups: usize,
    groups: Range<usize>,
}

impl<'a, X> Columns<'a, X> {
    /// Of groups that were made for this product alone, column by column.
    #[inline(always)]
    fn made(all: &'a [X], rows: &'a [Column], n_groups: usize) -> Columns<'a, X> {
        Columns { all, rows, is_in_order: true, n_groups, groups: 0..n_groups }
    }

    /// How many there are.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// One of them.
    #[inline(always)]
    pub fn column(&self, c: usize) -> &'a [X] {
        let row = if self.is_in_order { c } else { self.rows[c].x };
        &self.all[row * self.n_groups + self.groups.start..][..self.groups.len()]
    }

    /// Bytes from a column to the one `n` after it, where they follow each other.
    #[inline(always)]
    pub fn distance(&self, n: usize) -> usize {
        n * self.n_groups * size_of::<X>()
    }
}

/// Groups of a product's columns as they were quantised.
#[inline(always)]
fn quantised<'a>(p: &Product<'a>, groups: &Range<usize>) -> Columns<'a, XGroup> {
    let n_groups = p.w.ne[0] / crate::quant::GROUP;
    Columns { all: p.quantised, rows: p.columns, is_in_order: false, n_groups, groups: groups.clone() }
}

/// Bytes, as they are unpacked and quantised.
pub struct Bytes<F>(PhantomData<F>);

impl<F: Format> Form for Bytes<F> {
    type Format = F;
    type Group = F::Group;
    type X = XGroup;
    const UNPACKED: usize = 32;

    #[inline(always)]
    fn unpack<S: Simd>(s: S, rows: impl Rows, out: &mut [F::Group]) {
        F::unpack(s, rows, out);
    }

    #[inline(always)]
    fn columns<'a, S: Simd>(
        _: S,
        p: &Product<'a>,
        groups: &Range<usize>,
        _: &'a mut Arena,
    ) -> Columns<'a, XGroup> {
        quantised(p, groups)
    }
}

/// Words of 16 bits, for bytes that have no instruction of their own.
pub struct Words<F>(PhantomData<F>);

impl<F: Format> Form for Words<F> {
    type Format = F;
    type Group = WordGroup;
    type X = XWords;
    const UNPACKED: usize = 16;

    #[inline(always)]
    fn unpack<S: Simd>(s: S, rows: impl Rows, out: &mut [WordGroup]) {
        let mut groups = [F::Group::ZERO; MAX_GROUPS];
        let groups = &mut groups[..F::GROUPS];
        F::unpack(s, rows, groups);
        for (out, group) in out.iter_mut().zip(groups) {
            out.set(s, group);
        }
    }

    #[inline(always)]
    fn columns<'a, S: Simd>(
        s: S,
        p: &Product<'a>,
        groups: &Range<usize>,
        room: &'a mut Arena,
    ) -> Columns<'a, XWords> {
        let bytes = quantised(p, groups);
        let all = room.take::<XWords>(bytes.len() * groups.len());
        for (c, out) in all.chunks_exact_mut(groups.len()).enumerate() {
            for (out, x) in out.iter_mut().zip(bytes.column(c)) {
                out.set(s, x);
            }
        }
        Columns::made(all, p.columns, groups.len())
    }
}
