//! Ctrl-C during work that runs without the interpreter's lock.

use parking_lot::Mutex;
use pyo3::prelude::*;
use std::time::{Duration, Instant};

/// How often Python's signal handlers run.
pub const INTERVAL: Duration = Duration::from_millis(50);

/// Runs Python's signal handlers every [`INTERVAL`], and keeps the exception that one raises.
pub struct Watch(Mutex<State>);

struct State {
    next: Instant,
    raised: Option<PyErr>,
}

impl Watch {
    /// From now on.
    pub fn new() -> Watch {
        Watch(Mutex::new(State { next: Instant::now() + INTERVAL, raised: None }))
    }

    /// Whether a handler has raised an exception. For threads without the interpreter's lock.
    pub fn is_interrupted(&self) -> bool {
        let mut state = self.0.lock();
        if state.raised.is_none() && Instant::now() >= state.next {
            state.raised = Python::attach(|py| py.check_signals()).err();
            state.next = Instant::now() + INTERVAL;
        }
        state.raised.is_some()
    }

    /// The exception, where there is one, in the place of what the interrupted work returned.
    pub fn or<T>(self, result: PyResult<T>) -> PyResult<T> {
        self.0.into_inner().raised.map_or(result, Err)
    }
}
