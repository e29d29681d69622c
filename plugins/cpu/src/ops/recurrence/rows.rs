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
    /// Of the columns from `start` on.
    fn column(&self, s: S, start: usize) -> Self::Column;
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
    fn column(&self, _: S, _: usize) {}
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
    fn column(&self, s: S, start: usize) -> Self::Column {
        (self.0.column(s, start), self.1.column(s, start))
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
    [a, b]: [&[f32]; 2],
    state: &mut [f32],
    first: usize,
) -> [[S::F; N]; 2] {
    let width = a.len();
    let rows: [C::Row; N] = array(|n| change.row(s, first + n));
    let (mut of_a, mut of_b) = ([s.zero(); N], [s.zero(); N]);
    for start in (0..width).step_by(LANES) {
        let (column, a, b) = (change.column(s, start), vector(s, a, start), vector(s, b, start));
        for n in 0..N {
            let elements = &mut state[n * width + start..(n + 1) * width];
            let new = C::apply(s, rows[n], column, vector(s, elements, 0));
            of_a[n] = s.fma(new, a, of_a[n]);
            of_b[n] = s.fma(new, b, of_b[n]);
            store(s, new, elements);
        }
    }
    [of_a, of_b]
}

/// Changes the rows of a strip of a state.
#[inline(always)]
pub fn change<S: Simd, C: Change<S>>(s: S, change: &C, width: usize, state: &mut [f32]) {
    for (i, row) in state.chunks_exact_mut(width).enumerate() {
        let of_row = change.row(s, i);
        for start in (0..width).step_by(LANES) {
            let elements = &mut row[start..];
            let new = C::apply(s, of_row, change.column(s, start), vector(s, elements, 0));
            store(s, new, elements);
        }
    }
}

/// 16 numbers from `start` on, zeros for those past the end.
#[inline(always)]
pub fn vector<S: Simd>(s: S, v: &[f32], start: usize) -> S::F {
    let v = &v[start..];
    match v.first_chunk() {
        Some(all) => s.load(all),
        None => s.load_part(v),
    }
}

/// As many of 16 numbers as there is room for.
#[inline(always)]
pub fn store<S: Simd>(s: S, v: S::F, to: &mut [f32]) {
    match to.first_chunk_mut() {
        Some(all) => s.store(v, all),
        None => s.store_part(v, to),
    }
}
