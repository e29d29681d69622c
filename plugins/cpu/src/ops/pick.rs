//! Which scores pass a node's rule.

use super::Args;
use super::check::{self, Answer, ensure};
use llmrt_plugin::abi::op::PickParams;
use llmrt_plugin::{NodeView, Reason};

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
