//! A request that runs: the engine's thread writes to it, Python reads.

use crate::error::Failure;
use crate::mailbox::Post;
use crate::progress::{Progress, Taking};
use crate::snapshot;
use llmrt::EngineEvent;
use llmrt::engine::RequestGuard;
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::sync::Arc;
use std::sync::mpsc::Sender;

/// A request and who waits for it. The engine has one reference until the request ends.
pub struct Running {
    state: Mutex<State>,
    waker: Waker,
    process: u32,
}

struct State {
    progress: Progress,
    guard: Option<RequestGuard>,
    /// Whether the reader has been notified since it read last.
    is_notified: bool,
}

/// Who waits.
pub enum Waker {
    /// A call for the end: gets the number of the request.
    AtEnd(Sender<usize>, usize),
    /// An event loop, with the stream's key.
    Loop {
        /// Where.
        post: Arc<Post>,
        /// Which.
        key: u64,
        /// Whether it waits for the end alone.
        only_end: bool,
    },
}

impl Running {
    /// A request that is about to be queued.
    pub fn new(progress: Progress, waker: Waker) -> Arc<Running> {
        let state = State { progress, guard: None, is_notified: false };
        Arc::new(Running { state: Mutex::new(state), waker, process: std::process::id() })
    }

    fn is_forked(&self) -> bool {
        self.process != std::process::id()
    }

    /// It is queued; without this guard it would be aborted.
    pub fn queued(&self, guard: RequestGuard) {
        self.state.lock().guard = Some(guard);
    }

    /// What happened, on the engine's thread.
    pub fn on_event(&self, event: EngineEvent) {
        self.change(|progress| progress.add(event));
    }

    /// Ends it with an error, unless it has ended, and aborts it.
    pub fn fail(&self, failure: Failure) {
        self.change(|progress| progress.fail(failure));
        self.abort();
    }

    /// The engine ends it with what there is. Nothing happens if it has ended.
    pub fn abort(&self) {
        let guard = self.state.lock().guard.take();
        drop(guard);
    }

    /// Changes what has not ended, and notifies who waits.
    fn change(&self, change: impl FnOnce(&mut Progress)) {
        let mut state = self.state.lock();
        if state.progress.has_ended() {
            return;
        }
        change(&mut state.progress);
        let has_ended = state.progress.has_ended();
        match &self.waker {
            // The caller may be gone.
            Waker::AtEnd(sender, i) if has_ended => drop(sender.send(*i)),
            Waker::Loop { post, key, only_end } if !state.is_notified && (has_ended || !only_end) => {
                state.is_notified = true;
                post.notify(*key);
            }
            _ => {}
        }
    }

    /// What is new since the last call; `None`: nothing, or less than what is waited for.
    pub fn take(&self, py: Python<'_>, taking: Taking) -> PyResult<Option<Py<PyTuple>>> {
        let taken = {
            let mut state = self.state.lock();
            state.is_notified = false;
            if matches!(self.waker, Waker::Loop { only_end: true, .. }) && !state.progress.has_ended() {
                return Ok(None);
            }
            state.progress.take(taking)
        };
        // Outside of the lock: to make objects may run any code.
        taken?.map(|snapshot| snapshot::to_python(py, snapshot)).transpose()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.is_forked() {
            // The engine of the guard is in another process.
            std::mem::forget(self.state.get_mut().guard.take());
        }
    }
}

/// A request of an event loop. To drop it aborts the request.
#[pyclass(frozen, weakref, module = "llmrt._llmrt")]
pub struct Stream(pub Arc<Running>);

#[pymethods]
impl Stream {
    /// What is new; all of the text so far, or what came since the last call.
    fn take(&self, py: Python<'_>, is_delta: bool) -> PyResult<Option<Py<PyTuple>>> {
        if self.0.is_forked() {
            // Its lock may be held by a thread that is not here.
            return Err(Failure::Forked.into());
        }
        self.0.take(py, if is_delta { Taking::Delta } else { Taking::All })
    }

    /// Ends the request with what there is.
    fn abort(&self) {
        if !self.0.is_forked() {
            self.0.abort();
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.abort();
    }
}
