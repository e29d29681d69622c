//! STUB
use super::check::Answer;
use super::{Args, Worker};
use llmrt_plugin::{NodeView, Reason};
pub fn supports(_node: &NodeView<'_>) -> Answer {
    Err(Reason::Op)
}
pub fn compute(_w: &mut Worker<'_>, _a: &Args) {}
