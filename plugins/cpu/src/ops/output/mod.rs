//! Where an op writes: a node's result, shared out among the team as `&mut` slices.
//!
//! That no two members write the same bytes follows from four facts. (1) Each member holds one [`Output`] per node, with a
//! [`Rank`] of its own, and a partition consumes it. (2) All members use the same partition: an op chooses it by the node's
//! [`Args`](super::Args) and the size of the team, and `Rank` gives no op its member's number. (3) A partition gives an
//! element to one member: the arithmetic of `share`, `pieces`, `Grid`, `owns` and the counters of `take`. (4) Blocks of a
//! result share no bytes, which [`supports`](super::supports) checks. The exception is [`Output::tile`], which is `unsafe`.

mod part;
mod tile;

#[cfg(test)]
mod tests;

pub use part::Part;
pub use tile::Tile;

use super::worker::{Rank, Taken};
use crate::cancel::Cancel;
use crate::tensor::Tensor;
use std::marker::PhantomData;
use std::ops::Range;
use tile::Grid;

/// What one member of the team writes of a node's result.
pub struct Output<'a> {
    y: Tensor,
    rank: Rank,
    taken: &'a [Taken],
    /// At nodes that take long: nothing is left to take once it is set.
    cancel: Option<&'a Cancel>,
}

impl<'a> Output<'a> {
    /// The result `y` of a node, for one member.
    ///
    /// # Safety
    /// `y` is the result of a node that [`supports`](super::supports) accepted. Every member that executes the node has
    /// a rank of its own of one team, gets one `Output` per run, and executes the same op with the same `taken`, as many
    /// as members and reset before the run. Until all have ended, nothing else uses the bytes of `y`.
    pub unsafe fn new(y: &Tensor, rank: Rank, taken: &'a [Taken], cancel: Option<&'a Cancel>) -> Output<'a> {
        Output { y: *y, rank, taken, cancel }
    }

    /// The tensor, for its shape.
    pub fn tensor(&self) -> &Tensor {
        &self.y
    }

    /// The same elements in another shape; the result has no gaps.
    pub fn reshaped(self, ne: [usize; 4]) -> Output<'a> {
        Output { y: self.y.reshaped(ne), ..self }
    }

    /// The same elements in one row; the result has no gaps.
    pub fn flat(self) -> Output<'a> {
        Output { y: self.y.flat(), ..self }
    }

    /// The first `n` elements and the others, each in a row; the result has no gaps. What is shared out of both is to be
    /// static ([`Output::tiles`], not [`Output::take_tiles`]), as they have one set of counters.
    pub fn split_at(self, n: usize) -> [Output<'a>; 2] {
        self.y.split_at(n).map(|y| Output { y, ..self })
    }

    /// This member's share of the rows.
    #[inline]
    pub fn rows(self) -> impl Iterator<Item = ([usize; 3], Part<'a>)> {
        let y = self.y;
        self.rank.share(y.n_rows()).map(move |row| {
            let at = y.unravel(row);
            (at, Part::new(y, at, 0..y.ne[0]))
        })
    }

    /// This member's share of the elements, as parts of rows: whole blocks of every dtype.
    #[inline]
    pub fn pieces(self) -> impl Iterator<Item = ([usize; 3], Range<usize>, Part<'a>)> {
        const PIECE: usize = 1024;
        let y = self.y;
        let (n, per_row) = (y.ne[0], y.ne[0].div_ceil(PIECE));
        self.rank.share(y.n_rows() * per_row).map(move |i| {
            let (at, start) = (y.unravel(i / per_row), i % per_row * PIECE);
            let elems = start..(start + PIECE).min(n);
            (at, elems.clone(), Part::new(y, at, elems))
        })
    }

    /// This member's share of the tiles of at most `size` elements in each dim, those of dim 0 side by side.
    pub fn tiles(self, size: [usize; 4]) -> impl Iterator<Item = Tile<'a>> {
        let grid = Grid::new(self.y, size, 0);
        self.rank.share(grid.len()).map(move |i| grid.tile(i))
    }

    /// Tiles as of [`Output::tiles`], taken one after the other by the member that has time; those of dim `fastest` are
    /// side by side.
    pub fn take_tiles(self, size: [usize; 4], fastest: usize) -> impl Iterator<Item = Tile<'a>> {
        self.take_tiles_ahead(size, fastest).map(|(tile, _)| tile)
    }

    /// The same, each with the ranges of the tile of this member's share that is next, if there is one; another member may
    /// take it before.
    pub fn take_tiles_ahead(
        self,
        size: [usize; 4],
        fastest: usize,
    ) -> impl Iterator<Item = (Tile<'a>, Option<[Range<usize>; 4]>)> {
        let grid = Grid::new(self.y, size, fastest);
        let share = self.rank.share(grid.len());
        std::iter::from_fn(move || {
            let tile = grid.tile(self.take(grid.len())?);
            let next = share.start + self.rank.counter(self.taken).n();
            Some((tile, share.contains(&next).then(|| grid.ranges(next))))
        })
    }

    /// Rows in any order: each has an owner, or, if they are long, each member has its share of the blocks of every row.
    pub fn scattered(self) -> Scattered<'a> {
        const LONG: usize = 8192;
        let n = self.y.ne[0];
        let cut = (n >= LONG).then(|| {
            let block = self.y.dtype.block_elems();
            let blocks = self.rank.share(n.div_ceil(block));
            blocks.start * block..(blocks.end * block).min(n)
        });
        Scattered { y: self.y, rank: self.rank, cut, owner: PhantomData }
    }

    /// Elements of these ranges, which the op shares out by itself.
    ///
    /// # Safety
    /// What is written by way of the tile is written by no other member at this node.
    pub unsafe fn tile(&self, dims: [Range<usize>; 4]) -> Tile<'a> {
        Tile::new(self.y, dims)
    }

    /// The next unclaimed of 0..n: of this member's share as long as there are any, so that it reads what is stored in a
    /// row, then of the others'. Which member gets it changes no result. `n` is the same on all members, and a node calls
    /// either this or [`Output::take_in_order`]. None is left once the run is cancelled.
    pub fn take(&self, n: usize) -> Option<usize> {
        if self.cancel.is_some_and(Cancel::poll) {
            return None;
        }
        self.rank.owners().find_map(|owner| {
            let share = owner.share(n);
            let i = share.start + owner.counter(self.taken).take();
            share.contains(&i).then_some(i)
        })
    }

    /// The next number that no member has, in order, where the number of pieces is found out on the way; past any number
    /// once the run is cancelled.
    pub fn take_in_order(&self) -> usize {
        if self.cancel.is_some_and(Cancel::poll) {
            return usize::MAX;
        }
        self.taken[0].take()
    }
}

/// Rows of a result, each with one member as its owner, or all cut alike.
pub struct Scattered<'a> {
    y: Tensor,
    rank: Rank,
    /// This member's elements of each row, if rows are cut.
    cut: Option<Range<usize>>,
    owner: PhantomData<&'a mut [u8]>,
}

impl Scattered<'_> {
    /// This member's elements of the row at these indices, and their bytes; none if it has none.
    pub fn row(&mut self, at: [usize; 3]) -> Option<(Range<usize>, &mut [u8])> {
        assert!(at.iter().zip(&self.y.ne[1..]).all(|(i, n)| i < n), "row {at:?} of {:?}", self.y.ne);
        let elems = match &self.cut {
            Some(cut) => (!cut.is_empty()).then(|| cut.clone()),
            None => self.rank.owns(self.y.ravel(at)).then_some(0..self.y.ne[0]),
        }?;
        Some((elems.clone(), Part::new(self.y, at, elems).bytes()))
    }
}
