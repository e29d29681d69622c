//! Ctrl-C during work that runs without the interpreter's lock.

use parking_lot::Mutex;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// How often Python's signal handlers run.
pub const INTERVAL: Duration = Duration::from_millis(50);

/// Set once the result of work is not waited for any more.
pub type Cancelled = Arc<AtomicBool>;

/// How long an interrupted call waits for its work to end before it leaves it.
const LEAVE_TIME: Duration = Duration::from_millis(300);

/// A thread that waits for work.
struct Worker {
    jobs: Sender<Box<dyn FnOnce() + Send>>,
    process: u32,
}

/// Threads that have ended their work. They are used again: with a new thread for each load, allocators give each other parts of
/// memory, and the process grows.
static IDLE: Mutex<Vec<Worker>> = Mutex::new(Vec::new());

impl Worker {
    /// An idle one of this process, or a new one.
    fn take() -> std::io::Result<Worker> {
        let process = std::process::id();
        let mut idle = IDLE.lock();
        // Those of a process that this one is a fork of are not here.
        idle.retain(|worker| worker.process == process);
        if let Some(worker) = idle.pop() {
            return Ok(worker);
        }
        let (jobs, received) = channel::<Box<dyn FnOnce() + Send>>();
        let run = move || received.into_iter().for_each(|job| job());
        std::thread::Builder::new().name("llmrt-load".into()).spawn(run)?;
        Ok(Worker { jobs, process })
    }
}

/// Runs work on another thread while Python's signal handlers run here. Where one raises an exception, the work is cancelled, and
/// what it still returns is dropped on its thread: parts of it may take seconds without looking at the flag.
pub fn on_thread<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce(Cancelled) -> T + Send + 'static,
) -> PyResult<T> {
    let cancelled = Cancelled::default();
    let (sender, mut receiver) = channel();
    let flag = cancelled.clone();
    let worker = Worker::take()?;
    // The receiver of a worker is there as long as the worker is.
    let _ = worker.jobs.send(Box::new(move || drop(sender.send(work(flag)))));
    loop {
        let received;
        (received, receiver) = py.detach(move || (receiver.recv_timeout(INTERVAL), receiver));
        match received {
            Ok(done) => {
                IDLE.lock().push(worker);
                return Ok(done);
            }
            Err(RecvTimeoutError::Disconnected) => {
                return Err(PyRuntimeError::new_err("the work panicked: this is a defect, please report it"));
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        if let Err(raised) = py.check_signals() {
            cancelled.store(true, Relaxed);
            let _ = py.detach(move || receiver.recv_timeout(LEAVE_TIME));
            return Err(raised);
        }
    }
}

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
