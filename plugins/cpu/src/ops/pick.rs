//! Which scores pass a node's rule.

use super::Args;
use super::check::{self, Answer, ensure};
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
            0 => score >= self.0.threshold || score.is_nan(),
            _ => score > self.0.threshold,
        }
    }

    /// Sets the marks of the scores that pass.
    #[inline(always)]
    pub fn mark(self, scores: &[f32], marks: &mut [u8]) {
        let threshold = self.0.threshold;
        match self.0.strict {
            0 => each(scores, marks, |score| (score >= threshold) | score.is_nan()),
            _ => each(scores, marks, |score| score > threshold),
        }
    }
}

/// Sets marks where a score is one of those.
#[inline(always)]
fn each(scores: &[f32], marks: &mut [u8], is_one: impl Fn(f32) -> bool) {
    marks.iter_mut().zip(scores).for_each(|(mark, score)| *mark |= u8::from(is_one(*score)));
}

/// Whether a node's params are a rule.
pub fn supports(node: &NodeView<'_>) -> Answer {
    let p = check::params(PickParams::from_bytes(node.params_bytes()))?;
    ensure(p.strict < 2 && !p.threshold.is_nan(), Reason::Param)
}

/// Rows that are kept, of a stretch, and room to find them.
#[derive(Default)]
pub struct Kept {
    /// In order.
    pub rows: Vec<usize>,
    marks: Vec<u8>,
}

impl Kept {
    /// The rows of a stretch that any column keeps, or its first ones if these are `enough` already. `mark` sets the marks of
    /// what a column keeps.
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
        let (start, marks) = (rows.start, &self.marks);
        kept(rows, &mut self.rows, |row| marks[row - start] != 0);
    }
}

/// The rows of a range that are kept, in order: without a branch for each, since which rows are kept follows no pattern.
#[inline(always)]
fn kept(range: Range<usize>, rows: &mut Vec<usize>, is_kept: impl Fn(usize) -> bool) {
    rows.resize(range.len(), 0);
    let mut n = 0;
    for row in range {
        rows[n] = row;
        n += usize::from(is_kept(row));
    }
    rows.truncate(n);
}
