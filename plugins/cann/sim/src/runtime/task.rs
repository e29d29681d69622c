//! What streams do: one thing after the other.

use crate::fault::{Answer, fault};
use crate::sys::ACL_ERROR_RT_INTERNAL_ERROR;
use crate::world::World;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Something a stream does. A captured one is done again at each launch of its graph.
#[derive(Clone)]
pub struct Task {
    /// For people.
    pub name: &'static str,
    run: Arc<Body>,
}

impl Task {
    /// A task.
    pub fn new(name: &'static str, run: impl Fn(&Arc<World>) -> Answer + Send + Sync + 'static) -> Task {
        Task { name, run: Arc::new(run) }
    }

    /// Does it; a panic is a fault of the simulator, reported like any other.
    pub fn run(&self, w: &Arc<World>) -> Answer {
        let done = catch_unwind(AssertUnwindSafe(|| (self.run)(w)));
        done.unwrap_or_else(|_| {
            fault(ACL_ERROR_RT_INTERNAL_ERROR, format!("the simulator panicked in {}", self.name))
        })
    }
}

type Body = dyn Fn(&Arc<World>) -> Answer + Send + Sync;
