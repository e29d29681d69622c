//! States whose rows depend on no other row: rows are changed by the token before, and multiplied with two vectors of the
//! next one, in one pass.

use crate::simd::{LANES, Simd, array};

/// Rows whose sums are made at a time.
pub const STRIP: usize = LANES;

/// What happens to a state between two products with it. Changes are made one after the other as a tuple.
pub trait Change<S: Simd> {
    /// What a row of the state takes.
    type Row: Copy;
    /// What 16 columns take.
    type Column: Copy;

    /// Of row `i` of a strip.
    fn row(&self, s: S, i: usize) -> Self::Row;
    /// Of the columns from `start` on: 16 if `FULL`, else as many as there are.
    fn column<const FULL: bool>(&self, s: S, start: usize) -> Self::Column;
    /// Elements of a row, changed.
    fn apply(s: S, row: Self::Row, column: Self::Column, elements: S::F) -> S::F;
}

/// None.
impl<S: Simd> Change<S> for () {
    type Row = ();
    type Column = ();

    #[inline(always)]
    fn row(&self, _: S, _: usize) {}
    #[inline(always)]
    fn column<const FULL: bool>(&self, _: S, _: usize) {}
    #[inline(always)]
    fn apply(_: S, (): (), (): (), elements: S::F) -> S::F {
        elements
    }
}

impl<S: Simd, A: Change<S>, B: Change<S>> Change<S> for (A, B) {
    type Row = (A::Row, B::Row);
    type Column = (A::Column, B::Column);

    #[inline(always)]
    fn row(&self, s: S, i: usize) -> Self::Row {
        (self.0.row(s, i), self.1.row(s, i))
    }
    #[inline(always)]
    fn column<const FULL: bool>(&self, s: S, start: usize) -> Self::Column {
        (self.0.column::<FULL>(s, start), self.1.column::<FULL>(s, start))
    }
    #[inline(always)]
    fn apply(s: S, row: Self::Row, column: Self::Column, elements: S::F) -> S::F {
        B::apply(s, row.1, column.1, A::apply(s, row.0, column.0, elements))
    }
}

/// Changes the rows of a strip of a state, and gives the products of each with two vectors: lane r is row r's.
#[inline(always)]
pub fn products<S: Simd, C: Change<S>>(
    s: S,
    change: &C,
    vectors: [&[f32]; 2],
    state: &mut [f32],
) -> [S::F; 2] {
    match S::WIDE {
        true => products_by::<S, C, 4>(s, change, vectors, state),
        false => products_by::<S, C, 1>(s, change, vectors, state),
    }
}

#[inline(always)]
fn products_by<S: Simd, C: Change<S>, const N: usize>(
    s: S,
    change: &C,
    vectors: [&[f32]; 2],
    state: &mut [f32],
) -> [S::F; 2] {
    let width = vectors[0].len();
    let mut sums = [[s.zero(); STRIP]; 2];
    let mut several = state.chunks_exact_mut(N * width);
    let mut i = 0;
    for rows in &mut several {
        let of_rows = products_of::<S, C, N>(s, change, vectors, rows, i);
        for n in 0..N {
            (sums[0][i + n], sums[1][i + n]) = (of_rows[0][n], of_rows[1][n]);
        }
        i += N;
    }
    for row in several.into_remainder().chunks_exact_mut(width) {
        let [[a], [b]] = products_of::<S, C, 1>(s, change, vectors, row, i);
        (sums[0][i], sums[1][i]) = (a, b);
        i += 1;
    }
    [s.sums(sums[0]), s.sums(sums[1])]
}

/// Rows from `first` on.
#[inline(always)]
fn products_of<S: Simd, C: Change<S>, const N: usize>(
    s: S,
    change: &C,
    vectors: [&[f32]; 2],
    state: &mut [f32],
    first: usize,
) -> [[S::F; N]; 2] {
    let width = vectors[0].len();
    let rows: [C::Row; N] = array(|n| change.row(s, first + n));
    let mut sums = [[s.zero(); N]; 2];
    for start in (0..full(width)).step_by(LANES) {
        add_products::<S, C, N, true>(s, change, vectors, &rows, state, start, &mut sums);
    }
    if full(width) < width {
        add_products::<S, C, N, false>(s, change, vectors, &rows, state, full(width), &mut sums);
    }
    sums
}

/// Adds the products of the columns from `start` on.
#[inline(always)]
fn add_products<S: Simd, C: Change<S>, const N: usize, const FULL: bool>(
    s: S,
    change: &C,
    [a, b]: [&[f32]; 2],
    rows: &[C::Row; N],
    state: &mut [f32],
    start: usize,
    [of_a, of_b]: &mut [[S::F; N]; 2],
) {
    let (width, column) = (a.len(), change.column::<FULL>(s, start));
    let (a, b) = (vector::<S, FULL>(s, a, start), vector::<S, FULL>(s, b, start));
    for n in 0..N {
        let elements = &mut state[n * width..(n + 1) * width];
        let new = C::apply(s, rows[n], column, vector::<S, FULL>(s, elements, start));
        of_a[n] = s.fma(new, a, of_a[n]);
        of_b[n] = s.fma(new, b, of_b[n]);
        store::<S, FULL>(s, new, elements, start);
    }
}

/// Changes the rows of a strip of a state.
#[inline(always)]
pub fn change<S: Simd, C: Change<S>>(s: S, change: &C, width: usize, state: &mut [f32]) {
    for (i, row) in state.chunks_exact_mut(width).enumerate() {
        let of_row = change.row(s, i);
        for start in (0..full(width)).step_by(LANES) {
            let column = change.column::<true>(s, start);
            store::<S, true>(s, C::apply(s, of_row, column, vector::<S, true>(s, row, start)), row, start);
        }
        if full(width) < width {
            let (start, column) = (full(width), change.column::<false>(s, full(width)));
            store::<S, false>(s, C::apply(s, of_row, column, vector::<S, false>(s, row, start)), row, start);
        }
    }
}

/// How many of `n` numbers are in full vectors.
#[inline(always)]
pub fn full(n: usize) -> usize {
    n - n % LANES
}

/// 16 numbers from `start` on, or, if not `FULL`, the fewer that there are and zeros. Two functions in one: a loop with
/// both keeps its vectors in memory.
#[inline(always)]
pub fn vector<S: Simd, const FULL: bool>(s: S, v: &[f32], start: usize) -> S::F {
    match FULL {
        true => s.load(&v[start..start + LANES].as_chunks().0[0]),
        false => s.load_part(&v[start..]),
    }
}

/// 16 numbers from `start` on, or, if not `FULL`, the fewer that there is room for.
#[inline(always)]
pub fn store<S: Simd, const FULL: bool>(s: S, v: S::F, to: &mut [f32], start: usize) {
    match FULL {
        true => s.store(v, &mut to[start..start + LANES].as_chunks_mut().0[0]),
        false => s.store_part(v, &mut to[start..]),
    }
}
