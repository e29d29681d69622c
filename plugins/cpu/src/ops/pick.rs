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
}

/// Whether a node's params are a rule.
pub fn supports(node: &NodeView<'_>) -> Answer {
    let p = check::params(PickParams::from_bytes(node.params_bytes()))?;
    ensure(p.strict < 2 && !p.threshold.is_nan(), Reason::Param)
}

/// The rows of a range that are kept, in order: without a branch for each, since which rows are kept follows no pattern.
#[inline(always)]
pub fn kept(range: Range<usize>, rows: &mut Vec<usize>, is_kept: impl Fn(usize) -> bool) {
    rows.resize(range.len(), 0);
    let mut n = 0;
    for row in range {
        rows[n] = row;
        n += usize::from(is_kept(row));
    }
    rows.truncate(n);
}
