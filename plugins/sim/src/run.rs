//! The run that a command belongs to, and time that passes unless the run is cancelled.

use llmrt_plugin::Host;
use std::time::{Duration, Instant};

/// How long a pause goes on before it looks again whether the run is cancelled.
const SLICE: Duration = Duration::from_millis(10);

/// A run of the host.
#[derive(Clone, Copy)]
pub struct Run {
    host: Host,
    id: u64,
}

impl Run {
    /// The run with this id.
    pub fn new(host: Host, id: u64) -> Run {
        Run { host, id }
    }

    /// The id.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Whether the host has cancelled it.
    pub fn is_cancelled(&self) -> bool {
        self.host.cancelled(self.id)
    }
}

/// Lets time pass; less of it once the run is cancelled.
pub fn pause(time: Duration, run: Option<Run>) {
    let Some(run) = run else { return std::thread::sleep(time) };
    let end = Instant::now() + time;
    while !run.is_cancelled() {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        std::thread::sleep(left.min(SLICE));
    }
}
