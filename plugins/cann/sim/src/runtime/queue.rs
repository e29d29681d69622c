//! A stream: a queue with a worker thread. When the worker starts on something is what the configuration varies.

use crate::config::Queue;
use crate::fault::{Answer, Fault, ensure, fault};
use crate::runtime::capture::{self, Graph};
use crate::runtime::context::Context;
use crate::runtime::task::Task;
use crate::sys::*;
use crate::world::World;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A stream.
pub struct Stream {
    /// Its handle; 0: a default stream.
    pub handle: usize,
    /// Its context.
    pub context: usize,
    /// Its card.
    pub device: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    tasks: VecDeque<Task>,
    /// How many were enqueued, how many are done, and how many a thread waits for.
    n_in: u64,
    n_done: u64,
    n_awaited: u64,
    fault: Option<Fault>,
    closed: bool,
    aborted: bool,
    capture: Option<Arc<Graph>>,
}

impl Stream {
    /// The default stream of a context.
    pub fn start(w: &Arc<World>, context: &Context) -> Arc<Stream> {
        Stream::new(w, context, 0)
    }

    /// A stream with this handle.
    pub fn new(w: &Arc<World>, context: &Context, handle: usize) -> Arc<Stream> {
        let stream = Arc::new(Stream {
            handle,
            context: context.handle,
            device: context.device,
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let (w, worker) = (w.clone(), stream.clone());
        std::thread::spawn(move || worker.work(&w));
        stream
    }

    /// Puts a task at the end, or into the graph that is being captured. Returns its place, for [`Stream::wait_until`].
    pub fn enqueue(&self, w: &Arc<World>, task: Task) -> Answer<u64> {
        let mut state = self.state();
        if let Some(graph) = state.capture.clone() {
            drop(state);
            graph.record(self.handle, task)?;
            return Ok(0);
        }
        state.tasks.push_back(task);
        state.n_in += 1;
        let place = state.n_in;
        let full = place.saturating_sub(w.config.depth);
        drop(state);
        self.changed.notify_all();
        match w.config.queue {
            Queue::Now => self.wait_until(w, place)?,
            _ if full > 0 => self.wait_until(w, full)?,
            _ => {}
        }
        Ok(place)
    }

    /// Waits for everything enqueued so far; the answer is the stream's latest fault.
    pub fn synchronize(&self, w: &Arc<World>, timeout: Option<Duration>) -> Answer {
        let place = self.state().n_in;
        let done = self.reach(place, timeout.unwrap_or(Duration::from_secs(w.config.watchdog)));
        ensure(done, ACL_ERROR_RT_STREAM_SYNC_TIMEOUT, || "the stream did not end in time".into())?;
        self.state().fault.clone().map_or(Ok(()), Err)
    }

    /// Waits for a place, and not for what came of it.
    pub fn wait_until(&self, w: &Arc<World>, place: u64) -> Answer {
        let done = self.reach(place, Duration::from_secs(w.config.watchdog));
        ensure(done, ACL_ERROR_RT_WAIT_TIMEOUT, || "something waits for what never comes".into())
    }

    /// The latest place.
    pub fn n_enqueued(&self) -> u64 {
        self.state().n_in
    }

    /// Whether a place is done; from now on it counts as waited for.
    pub fn is_done(&self, place: u64) -> bool {
        let mut state = self.state();
        let done = state.n_done >= place;
        state.n_awaited = state.n_awaited.max(place);
        drop(state);
        self.changed.notify_all();
        done
    }

    /// Waits for a place; false after the timeout.
    pub fn reach(&self, place: u64, timeout: Duration) -> bool {
        let mut state = self.state();
        state.n_awaited = state.n_awaited.max(place);
        self.changed.notify_all();
        self.changed.wait_while_for(&mut state, |state| state.n_done < place, timeout);
        state.n_done >= place
    }

    /// Drops what has not begun, and ends what waits for other cards.
    pub fn abort(&self) {
        let mut state = self.state();
        state.aborted = true;
        let dropped = std::mem::take(&mut state.tasks);
        state.n_done += dropped.len() as u64;
        drop(state);
        drop(dropped);
        self.changed.notify_all();
    }

    /// Whether it was aborted.
    pub fn is_aborted(&self) -> bool {
        self.state().aborted
    }

    /// The worker ends after what is enqueued.
    pub fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        state.n_awaited = u64::MAX;
        drop(state);
        self.changed.notify_all();
    }

    /// The graph that its work goes into, if it is being captured.
    pub fn capture(&self) -> Option<Arc<Graph>> {
        self.state().capture.clone()
    }

    /// Starts or ends a capture.
    pub fn set_capture(&self, graph: Option<Arc<Graph>>) {
        self.state().capture = graph;
    }

    /// Refuses a call that would end a capture.
    pub fn not_captured(&self, w: &World, what: &str) -> Answer {
        if capture::is_capturing(self) { self.spoil(w, ACL_ERROR_RT_STREAM_CAPTURED, what) } else { Ok(()) }
    }

    /// Invalidates the stream's capture.
    pub fn spoil(&self, _w: &World, code: i32, what: &str) -> Answer {
        if let Some(graph) = self.capture() {
            graph.invalidate();
        }
        fault(code, format!("{what} while the stream is captured"))
    }

    fn work(&self, w: &Arc<World>) {
        let lazy = w.config.queue == Queue::Sync;
        loop {
            let may_start = |s: &State| !s.tasks.is_empty() && (!lazy || s.n_done < s.n_awaited);
            let ended = |s: &State| s.closed && s.tasks.is_empty();
            let idle = |s: &mut State| !(may_start(s) || ended(s));
            let mut state = self.state();
            self.changed.wait_while(&mut state, idle);
            let Some(task) = state.tasks.pop_front() else { return };
            let n_done = state.n_done;
            drop(state);
            if w.config.queue == Queue::Delay {
                dawdle(w.random(&[self.handle as u64, n_done]));
            }
            let answer = task.run(w);
            let mut state = self.state();
            if let Err(fault) = answer {
                w.trace.line(|| format!("FAULT {} {}", task.name, fault.text));
                if w.config.sticky && matches!(fault.code, 507_011..=507_050) {
                    w.cards[self.device].lock().broken = Some(fault.clone());
                }
                // Later work goes on; the newest fault is the one that is seen.
                state.fault = Some(fault);
            }
            state.n_done += 1;
            drop(state);
            self.changed.notify_all();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

/// Mostly nothing, sometimes long enough that everything else goes first.
fn dawdle(random: u64) {
    let us = match random % 64 {
        0 => 3000,
        1..16 => random >> 32 & 255,
        _ => return,
    };
    let until = Instant::now() + Duration::from_micros(us);
    while let Some(left) = until.checked_duration_since(Instant::now()) {
        std::thread::sleep(left);
    }
}
