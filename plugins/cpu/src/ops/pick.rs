//! Which scores pass a node's rule.

use super::Args;
use super::check::{self, Answer, ensure};
use crate::simd::lowest_bits;
use llmrt_plugin::abi::op::PickParams;
use llmrt_plugin::{NodeView, Reason};
use std::ops::Range;

/// A node's rule.
#[derive(Clone, Copy)]
pub struct Pick(PickParams);

impl Pick {
    /// The rule of a node.
    pub fn of(a: &Args) -> Pick {
        Pick(a.params(PickParams::from_bytes))
    }

    /// Whether a score passes.
    #[inline(always)]
    pub fn passes(self, score: f32) -> bool {
        match self.0.strict {
            0 => (score >= self.0.threshold) | score.is_nan(),
            _ => score > self.0.threshold,
        }
    }

    /// `y` if its score passes, else 0; without a branch, since which pass follows no pattern.
    #[inline(always)]
    pub fn keep(self, score: f32, y: f32) -> f32 {
        f32::from_bits(y.to_bits() & u32::from(self.passes(score)).wrapping_neg())
    }

    /// Sets the marks of the scores that pass.
    #[inline(always)]
    pub fn mark(self, scores: &[f32], marks: &mut [u8]) {
        marks.iter_mut().zip(scores).for_each(|(mark, score)| *mark |= u8::from(self.passes(*score)));
    }
}

/// Whether a node's params are a rule.
pub fn supports(node: &NodeView<'_>) -> Answer {
    let p = check::params(PickParams::from_bytes(node.params_bytes()))?;
    ensure(p.strict < 2 && !p.threshold.is_nan(), Reason::Param)
}

/// Marks that are looked at together.
const MARKS: usize = 64;

/// A bit for each mark.
fn bits(marks: &[u8]) -> u64 {
    let (eights, rest) = marks.as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    eights
        .iter()
        .chain([&last])
        .take(MARKS / 8)
        .enumerate()
        .fold(0, |bits, (i, marks)| bits | u64::from(lowest_bits(u64::from_le_bytes(*marks))) << (8 * i))
}

/// Rows that are kept, of one stretch or several, and room to find them.
#[derive(Default)]
pub struct Kept {
    /// In order of the stretches; cleared before others are found.
    pub rows: Vec<usize>,
    marks: Vec<u8>,
}

impl Kept {
    /// Adds the rows of a stretch that any column keeps, or those of its first ones if these are `enough` already. `mark` sets
    /// the marks of what a column keeps.
    #[inline(always)]
    pub fn find(
        &mut self,
        rows: Range<usize>,
        columns: Range<usize>,
        enough: usize,
        mut mark: impl FnMut(usize, &mut [u8]),
    ) {
        self.marks.clear();
        self.marks.resize(rows.len(), 0);
        for column in columns {
            mark(column, &mut self.marks);
            // Of few columns all are looked at sooner than they are counted.
            if column % 8 == 7 && self.marks.iter().map(|&mark| usize::from(mark)).sum::<usize>() >= enough {
                break;
            }
        }
        // A step for each row that is kept, not a branch for each row: which are kept follows no pattern.
        for (start, marks) in rows.step_by(MARKS).zip(self.marks.chunks(MARKS)) {
            let mut left = bits(marks);
            while left != 0 {
                self.rows.push(start + left.trailing_zeros() as usize);
                left &= left - 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_those_that_any_column_keeps_in_order_after_what_was_found_before() {
        for n in [0, 1, 7, 8, 63, 64, 65, 200] {
            let keeps = |column: usize, row: usize| (row * 7 + column * 13) % 11 < 2 || row == n - 1;
            let mut kept = Kept { rows: vec![3], ..Kept::default() };
            kept.find(100..100 + n, 2..4, usize::MAX, |column, marks| {
                marks.iter_mut().enumerate().for_each(|(row, mark)| *mark |= u8::from(keeps(column, row)));
            });
            let expected = (0..n).filter(|&row| keeps(2, row) || keeps(3, row)).map(|row| 100 + row);
            assert_eq!(kept.rows, [3].into_iter().chain(expected).collect::<Vec<_>>(), "{n} rows");
        }
    }

    #[test]
    fn rows_end_early_where_few_columns_keep_enough() {
        let mut kept = Kept::default();
        kept.find(0..64, 0..16, 4, |column, marks| marks[column] = 1);
        assert_eq!(kept.rows, (0..8).collect::<Vec<_>>());
    }
}
