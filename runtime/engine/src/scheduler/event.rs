//! What happens to the scheduler. Its state is a function of the events since it was made: a recorded trace replays exactly.

use super::group::NewGroup;
use super::plan::StepPlan;
use super::{Outcome, PreemptionCost, Scheduler};
use crate::error::Result;
use crate::request::RequestId;
use crate::sequence::{SequenceId, TokenId};

/// One change of the scheduler's state.
#[derive(Clone, PartialEq, Debug)]
pub enum Event {
    /// A request arrives.
    Add(NewGroup),
    /// A request ends before it is complete.
    Abort(RequestId),
    /// The next step is planned; it is in flight until `Completed` or `Failed`.
    Schedule,
    /// The step in flight is computed; what was sampled of its logits.
    Completed(Vec<Outcome>),
    /// The step in flight is not computed; it can be repeated.
    Failed,
    /// The device's caches are lost: what they held is computed again.
    CachesLost,
    /// What was swapped to host memory is lost.
    HostBlocksLost,
    /// So many blocks are not to be used: memory is lost, or found.
    Withhold(usize),
    /// Steps have at most so many tokens from now on.
    MaxTokens(usize),
    /// Swapping and recomputing take these times.
    Cost(PreemptionCost),
    /// A request with one sequence goes on after other tokens.
    Replace(RequestId, Vec<TokenId>),
    /// The next step computes these guesses of a sequence's next tokens, if it has room.
    Draft(SequenceId, Vec<TokenId>),
}

/// What an event leads to.
#[derive(Clone, PartialEq, Debug)]
pub enum Effect {
    /// The state alone changed.
    None,
    /// The step to execute.
    Plan(Box<StepPlan>),
    /// The sequences that go on, by outcome and in its order.
    Continued(Vec<Vec<SequenceId>>),
}

impl Scheduler {
    /// One event: (state, event) → (state, effect). An error leaves the state as it was.
    pub fn apply(&mut self, event: &Event) -> Result<Effect> {
        Ok(match event {
            Event::Add(group) => self.add(group).map(|()| Effect::None)?,
            Event::Abort(id) => self.abort(*id).map(|()| Effect::None)?,
            Event::Schedule => Effect::Plan(Box::new(self.schedule()?)),
            Event::Completed(outcomes) => Effect::Continued(self.complete(outcomes)?),
            Event::Failed => self.fail().map(|()| Effect::None)?,
            Event::CachesLost => self.lose_caches().map(|()| Effect::None)?,
            Event::HostBlocksLost => self.lose_host_blocks().map(|()| Effect::None)?,
            Event::Withhold(n) => {
                self.withhold(*n);
                Effect::None
            }
            Event::Cost(cost) => {
                self.set_preemption_cost(*cost);
                Effect::None
            }
            Event::MaxTokens(n) => self.set_max_num_batched_tokens(*n).map(|()| Effect::None)?,
            Event::Draft(id, tokens) => self.draft(*id, tokens.clone()).map(|()| Effect::None)?,
            Event::Replace(id, tokens) => self.replace(*id, tokens).map(|()| Effect::None)?,
        })
    }
}
