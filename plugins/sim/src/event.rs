//! Events: the place in a queue where one was recorded last.

use crate::device::Slot;
use crate::queue::Mark;
use llmrt_plugin::{Event, Result};
use parking_lot::Mutex;
use std::time::Duration;

/// An event of a simulated device.
pub struct SimEvent {
    mark: Mutex<Option<Mark>>,
    _slot: Slot,
}

impl SimEvent {
    /// One that was never recorded.
    pub fn new(slot: Slot) -> SimEvent {
        SimEvent { mark: Mutex::new(None), _slot: slot }
    }

    /// Records it at a place.
    pub fn record(&self, mark: Mark) {
        *self.mark.lock() = Some(mark);
    }

    /// Where it was recorded last.
    pub fn mark(&self) -> Option<Mark> {
        self.mark.lock().clone()
    }
}

impl Event for SimEvent {
    fn query(&self) -> Result<bool> {
        self.wait(Duration::ZERO)
    }

    fn wait(&self, timeout: Duration) -> Result<bool> {
        self.mark().map_or(Ok(true), |mark| mark.wait(Some(timeout)))
    }
}
