//! A part of a result in all dims.

use crate::tensor::Tensor;
use std::marker::PhantomData;
use std::ops::Range;

/// A range of each dim of an F32 result that one member writes.
pub struct Tile<'a> {
    y: Tensor,
    dims: [Range<usize>; 4],
    owner: PhantomData<&'a mut [u8]>,
}

impl<'a> Tile<'a> {
    /// These ranges of a result. What is written of them is written through this tile alone.
    pub(super) fn new(y: Tensor, dims: [Range<usize>; 4]) -> Tile<'a> {
        assert!(y.has_f32_rows(), "a tile of {} elements {} bytes apart", y.dtype, y.nb[0]);
        Tile { y, dims, owner: PhantomData }
    }

    /// Its range in each dim.
    pub fn dims(&self) -> [Range<usize>; 4] {
        self.dims.clone()
    }

    /// Dims 1 to 3 of row `i` of the result.
    #[inline(always)]
    pub fn unravel(&self, i: usize) -> [usize; 3] {
        self.y.unravel(i)
    }

    /// Its elements of the row at these indices of the result.
    #[inline]
    pub fn row(&mut self, at: [usize; 3]) -> &mut [f32] {
        self.part(at, self.dims[0].clone())
    }

    /// Elements `part` of the row at these indices of the result.
    ///
    /// Always inlined: a kernel writes columns that are pages apart, and indices passed through memory would make each
    /// column wait for the stores of the one before it.
    #[inline(always)]
    pub fn part(&mut self, at: [usize; 3], part: Range<usize>) -> &mut [f32] {
        let [dim0, dim1, dim2, dim3] = &self.dims;
        let is_inside = dim0.start <= part.start && part.end <= dim0.end;
        let is_row = dim1.contains(&at[0]) & dim2.contains(&at[1]) & dim3.contains(&at[2]);
        if !(is_inside && is_row) {
            self.refuse(at, part.start, part.end);
        }
        // SAFETY: these elements are this tile's alone, and it is borrowed.
        unsafe { self.y.part_mut(at, part) }
    }

    #[cold]
    #[inline(never)]
    fn refuse(&self, at: [usize; 3], start: usize, end: usize) -> ! {
        panic!("elements {start}..{end} of row {at:?} of tile {:?}", self.dims)
    }
}

/// A result cut into tiles: places of the grid and numbers below [`Grid::len`] correspond one to one, and tiles at
/// different places have no element in common.
pub(super) struct Grid {
    y: Tensor,
    size: [usize; 4],
    /// Tiles in each dim: one where a dim is empty.
    n: [usize; 4],
    fastest: usize,
}

impl Grid {
    /// Tiles of `y` of at most `size`.
    pub(super) fn new(y: Tensor, size: [usize; 4], fastest: usize) -> Grid {
        let size = size.map(|n| n.max(1));
        Grid { y, size, n: std::array::from_fn(|d| y.ne[d].div_ceil(size[d]).max(1)), fastest }
    }

    /// Tiles.
    pub(super) fn len(&self) -> usize {
        self.n.iter().product()
    }

    /// Tile `i`, which is made once.
    pub(super) fn tile<'a>(&self, i: usize) -> Tile<'a> {
        Tile::new(self.y, self.ranges(i))
    }

    /// The ranges of tile `i`.
    pub(super) fn ranges(&self, i: usize) -> [Range<usize>; 4] {
        let (mut place, mut rest) = ([0; 4], i / self.n[self.fastest]);
        place[self.fastest] = i % self.n[self.fastest];
        for d in (0..4).filter(|d| *d != self.fastest) {
            (place[d], rest) = (rest % self.n[d], rest / self.n[d]);
        }
        let range = |d: usize| place[d] * self.size[d]..((place[d] + 1) * self.size[d]).min(self.y.ne[d]);
        std::array::from_fn(range)
    }
}
