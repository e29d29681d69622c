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
            0 => (score >= self.0.threshold) | score.is_nan(),
            _ => score > self.0.threshold,
        }
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
        // Without a branch for each row, since which rows are kept follows no pattern.
        self.rows.resize(rows.len(), 0);
        let mut n = 0;
        for (row, mark) in rows.zip(&self.marks) {
            self.rows[n] = row;
            n += usize::from(*mark);
        }
        self.rows.truncate(n);
    }
}
