//! Rows of one weight matrix times chosen columns: what `mul_mat` and `mul_mat_id` are made of.
//!
//! [`super::product_quantised`] multiplies quantised weights, [`super::product_floats`] others. The order of each sum
//! depends on k alone, so one column gives the same bits as many.

mod next_panels;

pub use next_panels::NextPanels;

use super::output::Tile;
use super::worker::share;
use super::{Output, product_floats, product_quantised};
use crate::quant::{ROWS, XGroup, turn, with_format};
use crate::scratch::Scratch;
use crate::simd::{Isa, LANES, RowSet, STRIP, Simd, array};
use crate::tensor::Tensor;
use std::ops::Range;

/// Which row of x makes which row of y.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Row of x, over all its outer dims.
    pub x: usize,
    /// Row of y, over all its outer dims.
    pub y: usize,
}

/// One matrix of weights and the columns that it is multiplied with.
pub struct Product<'a> {
    /// The weights.
    pub w: &'a Tensor,
    /// Dims 2 and 3 of the matrix.
    pub at: [usize; 2],
    /// The rows of the matrix that are multiplied, of quantised weights; `None`: all. Those past the rows of the result are only
    /// prefetched.
    pub picked: Option<&'a [usize]>,
    /// All rows of the activations quantised, for quantised weights.
    pub quantised: &'a [XGroup],
    /// The columns packed, for float weights.
    pub packed: &'a [f32],
    /// The columns.
    pub columns: &'a [Column],
}

impl<'a> Product<'a> {
    /// The `n` rows from `first` on, at least one; the last one stands in for those up to 16.
    #[inline(always)]
    pub fn row_set(&self, first: usize, n: usize) -> RowSet<'a> {
        let (bytes, n_bytes) = (self.w.bytes(), self.w.row_bytes([0, self.at[0], self.at[1]]).len());
        RowSet::new(array(|r| {
            let row = first + r.min(n.saturating_sub(1));
            let row = self.picked.map_or(row, |rows| rows[row]);
            &bytes[self.w.offset_of([row, self.at[0], self.at[1]])..][..n_bytes]
        }))
    }
}

/// Columns up to which 16 quantised rows are multiplied as memory brings them, with all columns in registers.
pub const MAX_FEW_COLUMNS: usize = 8;

/// Columns up to which matrices by columns are multiplied element by element, without the zeros of each column, if there are
/// enough zeros.
pub const FEW_BY_ELEMENTS: usize = 16;

/// The most rows of a piece of a matrix by columns: their sums stay in the first cache.
const MAX_BY_COLUMNS: usize = 16 * 2 * STRIP;

/// Rows of all matrices, cut into pieces that threads take one after the other.
pub struct Pieces {
    n_rows: usize,
    rows: usize,
    per_matrix: usize,
    n: usize,
}

impl Pieces {
    /// Pieces of whole panels, several per thread; of pairs of panels where a matrix has many columns, which wide vectors
    /// multiply two panels with.
    pub fn new(n_threads: usize, n_rows: usize, n_matrices: usize, n_columns: usize) -> Pieces {
        let unit = if n_columns > MAX_FEW_COLUMNS { 2 * ROWS } else { ROWS };
        let rows = (n_rows * n_matrices / (n_threads * 8)).next_multiple_of(unit).clamp(unit, 256);
        let per_matrix = n_rows.div_ceil(rows);
        Pieces { n_rows, rows, per_matrix, n: per_matrix * n_matrices }
    }

    /// Pieces for these weights: as of [`Pieces::new`], but of matrices by columns, whose rows are read side by side, as many
    /// rows as threads leave.
    pub fn of(w: &Tensor, n_threads: usize, n_columns: usize) -> Pieces {
        let (n_rows, n_matrices) = (w.ne[1], w.ne[2] * w.ne[3]);
        let turn = with_format!(w.dtype, F => turn::<F>(), else STRIP);
        if w.columns.is_none() || n_columns > FEW_BY_ELEMENTS {
            let pieces = Pieces::new(n_threads, n_rows, n_matrices, n_columns);
            // Rows that share bytes are put side by side together, if that leaves some pieces for each thread.
            let is_for_turns = w.columns.is_some() && n_rows >= 4 * n_threads * turn;
            return if is_for_turns {
                Pieces::of_one(n_rows, pieces.rows.next_multiple_of(turn))
            } else {
                pieces
            };
        }
        let unit = turn.max(2 * STRIP);
        let per_thread = n_rows.div_ceil(MAX_BY_COLUMNS * n_threads);
        let rows = n_rows.div_ceil(n_threads * per_thread.max(1)).next_multiple_of(unit).min(MAX_BY_COLUMNS);
        Pieces::of_one(n_rows, rows)
    }

    /// One matrix of `n_rows`, `rows` at a time.
    fn of_one(n_rows: usize, rows: usize) -> Pieces {
        let n = n_rows.div_ceil(rows);
        Pieces { n_rows, rows, per_matrix: n, n }
    }

    /// Rows of a piece, the last one's of a matrix perhaps fewer.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Matrix and rows of the next piece.
    pub fn take(&self, out: &Output<'_>) -> Option<(usize, Range<usize>)> {
        out.take(self.n).map(|i| self.piece(i))
    }

    /// The first and the last piece of a thread's share; none where it has no share.
    pub fn ends(&self, index: usize, n_threads: usize) -> Option<[(usize, Range<usize>); 2]> {
        let share = share(self.n, index, n_threads);
        (!share.is_empty()).then(|| [share.start, share.end - 1].map(|i| self.piece(i)))
    }

    fn piece(&self, i: usize) -> (usize, Range<usize>) {
        let start = i % self.per_matrix * self.rows;
        (i / self.per_matrix, start..(start + self.rows).min(self.n_rows))
    }
}

/// Computes the elements of the columns that are in `y`, a tile of the result [m, …].
pub fn compute(isa: Isa, p: &Product<'_>, y: &mut Tile<'_>, scratch: &mut Scratch) {
    with_format!(p.w.dtype, F => product_quantised::quantised::<F>(isa, p, y, scratch), else product_floats::floats(isa, p, y, scratch))
}

/// Prefetch distance of a panel's one stream, in bytes: memory answers in time, and the first cache still
/// has room for the columns.
pub const AHEAD: usize = 8192;

/// Writes the sums of rows to the columns of y: panel by panel, `distance` apart, one after the other.
#[inline(always)]
pub fn write_out<S: Simd>(
    s: S,
    y: &mut Tile<'_>,
    columns: &[Column],
    rows: &Range<usize>,
    sums: &[[f32; LANES]],
    distance: usize,
) {
    for (c, column) in columns.iter().enumerate() {
        let y = y.part(y.unravel(column.y), rows.clone());
        let (whole, rest) = y.as_chunks_mut();
        let mut sums = sums[c..].iter().step_by(distance);
        for (y, sums) in whole.iter_mut().zip(&mut sums) {
            s.store(s.load(sums), y);
        }
        if !rest.is_empty()
            && let Some(sums) = sums.next()
        {
            rest.copy_from_slice(&sums[..rest.len()]);
        }
    }
}
