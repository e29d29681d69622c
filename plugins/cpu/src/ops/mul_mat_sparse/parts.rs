//! Which rows are multiplied with which columns.

use crate::ops::pick::{Kept, Pick};
use crate::ops::product::MAX_FEW_COLUMNS;
use crate::tensor::Tensor;
use std::ops::Range;

/// Columns that are multiplied with a quantised row in the time in which it is unpacked, about: few of them, and many.
const UNPACKING: [usize; 2] = [11, 6];

/// Scores and their rule.
#[derive(Clone, Copy)]
pub struct Picked<'a> {
    /// A score for each element of the result.
    pub scores: &'a Tensor,
    /// Which of them pass.
    pub pick: Pick,
}

impl Picked<'_> {
    /// The scores of these rows in a column.
    pub fn of(&self, column: usize, rows: Range<usize>) -> &[f32] {
        &self.scores.row([column, 0, 0])[rows]
    }

    /// How many elements pass.
    fn count(&self, rows: Range<usize>, columns: Range<usize>) -> usize {
        let of_column = |j: usize| {
            let passes = |score: &f32| u32::from(self.pick.passes(*score));
            self.of(j, rows.clone()).iter().map(passes).sum::<u32>() as usize
        };
        columns.map(of_column).sum()
    }
}

/// How the rows of a tile are multiplied.
#[derive(Clone, Copy, PartialEq, Default)]
pub enum Way {
    /// All of them with all columns.
    #[default]
    All,
    /// Those that pass in any column with all columns: one part.
    Together,
    /// Those that pass in a column with this column: a part for each.
    Alone,
}

/// The rows of a tile that are multiplied, in parts.
#[derive(Default)]
pub struct Parts {
    /// How.
    pub way: Way,
    /// Of which rows.
    of: Range<usize>,
    kept: Kept,
    /// Where the rows of each part end.
    ends: Vec<usize>,
}

impl Parts {
    /// Finds which of these rows are multiplied, and how, unless that was found last.
    pub fn find(&mut self, picked: &Picked<'_>, rows: Range<usize>, n_columns: usize, is_quantised: bool) {
        if self.of == rows {
            return;
        }
        self.of = rows.clone();
        let (n, too_many) = (rows.len(), too_many_of(rows.len()));
        self.ends.clear();
        self.kept.rows.clear();
        self.add(picked, rows.clone(), 0..n_columns, too_many);
        let n_kept = if self.kept.rows.len() < too_many { self.kept.rows.len() } else { n };
        let unpacking = UNPACKING[usize::from(n_columns > MAX_FEW_COLUMNS)];
        let is_less_alone = |count: usize| count * (unpacking + 1) < n_kept * (unpacking + n_columns);
        self.way = if n_columns > 1 && is_quantised && is_less_alone(picked.count(rows.clone(), 0..n_columns))
        {
            Way::Alone
        } else if n_kept < n {
            Way::Together
        } else {
            Way::All
        };
        if self.way == Way::Alone {
            self.ends.clear();
            self.kept.rows.clear();
            (0..n_columns).for_each(|j| self.add(picked, rows.clone(), j..j + 1, usize::MAX));
        }
    }

    /// The rows of part `i`; none where there is no such part.
    pub fn rows(&self, i: usize) -> &[usize] {
        let start = i.checked_sub(1).map_or(Some(0), |before| self.ends.get(before).copied());
        let end = self.ends.get(i).filter(|_| self.way != Way::All);
        start.zip(end).map_or(&[], |(start, &end)| &self.kept.rows[start..end])
    }

    /// A part of the rows that pass in any of these columns; if they are `too_many`, perhaps not all of them.
    fn add(&mut self, picked: &Picked<'_>, rows: Range<usize>, columns: Range<usize>, too_many: usize) {
        self.kept.find(rows.clone(), columns, too_many, |column, marks| {
            picked.pick.mark(picked.of(column, rows.clone()), marks);
        });
        self.ends.push(self.kept.rows.len());
    }
}

/// How many of `n` rows take as long alone as all of them in place.
fn too_many_of(n: usize) -> usize {
    (n * 7).div_ceil(10)
}
