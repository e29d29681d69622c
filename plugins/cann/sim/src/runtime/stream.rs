//! Streams: queues with a worker thread each. When the worker starts on something is what the configuration varies.

use crate::config::Queue;
use crate::fault::{Answer, Fault, ensure, fault};
use crate::runtime::capture::{self, Graph};
use crate::runtime::context::{Context, current, default_stream};
use crate::sys::*;
use crate::world::{World, api, put};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

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
    /// How many came, how many are done, and how many somebody waits for.
    n_in: u64,
    n_done: u64,
    wanted: u64,
    fault: Option<Fault>,
    closed: bool,
    capture: Option<Arc<Graph>>,
}

api! { cann_acl;
    fn aclrtCreateStream(stream: *mut aclrtStream) w => {
        put(stream, create(w)? as aclrtStream)
    }
    fn aclrtCreateStreamWithConfig(stream: *mut aclrtStream, _priority: u32, flags: u32) w => {
        ensure(flags < 0x40, ACL_ERROR_RT_PARAM_INVALID, || format!("flags {flags:#x}"))?;
        put(stream, create(w)? as aclrtStream)
    }
    /// Waits for the stream's work.
    fn aclrtDestroyStream(stream: aclrtStream) w => {
        ensure(!stream.is_null(), ACL_ERROR_INVALID_PARAM, || "NULL".into())?;
        let stream = resolve(w, stream)?;
        ensure(!capture::is_capturing(&stream), ACL_ERROR_RT_STREAM_CAPTURED, || "it is being captured".into())?;
        w.streams.remove(stream.handle);
        // A fault was for whoever synchronised.
        let _ = stream.synchronize(w, None);
        stream.close();
        crate::lock(&w.cards[stream.device]).n_streams -= 1;
        Ok(())
    }
    fn aclrtSynchronizeStream(stream: aclrtStream) w => {
        wait(w, stream, None)
    }
    fn aclrtSynchronizeStreamWithTimeout(stream: aclrtStream, ms: i32) w => {
        ensure(ms == -1 || ms > 0, ACL_ERROR_RT_PARAM_INVALID, || format!("{ms} ms"))?;
        wait(w, stream, u64::try_from(ms).ok().map(Duration::from_millis))
    }
    fn aclrtStreamQuery(stream: aclrtStream, status: *mut aclrtStreamStatus) w => {
        let stream = resolve(w, stream)?;
        stream.not_captured(w, "aclrtStreamQuery")?;
        let mut state = stream.state();
        let done = state.n_done == state.n_in;
        state.wanted = state.n_in;
        drop(state);
        stream.changed.notify_all();
        put(status, if done { ACL_STREAM_STATUS_COMPLETE } else { ACL_STREAM_STATUS_NOT_READY })
    }
    fn aclrtSynchronizeDevice() w => {
        let device = current(w)?.device;
        w.trace.count("sync", 1);
        capture::forbid_waits(w, device)?;
        synchronize_device(w, device)
    }
}

fn create(w: &Arc<World>) -> Answer<usize> {
    let context = current(w)?;
    let limit = if w.config.streams > 0 { w.config.streams } else { w.chip.streams };
    let mut card = crate::lock(&w.cards[context.device]);
    let full = || format!("card {} has {limit} streams already", context.device);
    ensure(card.n_streams < limit, ACL_ERROR_RT_NO_STREAM_RESOURCE, full)?;
    card.n_streams += 1;
    Ok(w.streams.insert_with(|handle| Stream::new(w, &context, handle)))
}

/// A stream of the calling thread's context; NULL is the default one.
pub fn resolve(w: &Arc<World>, handle: aclrtStream) -> Answer<Arc<Stream>> {
    let context = current(w)?;
    if handle.is_null() {
        if let Some(graph) = capture::active_for_thread(w) {
            graph.invalidate();
            return fault(ACL_ERROR_RT_STREAM_CAPTURE_IMPLICIT, "the default stream while capturing");
        }
        return Ok(default_stream(w, &context));
    }
    let Some(stream) = w.streams.get(handle as usize) else {
        return fault(ACL_ERROR_RT_PARAM_INVALID, format!("{handle:p} is no stream"));
    };
    let same = stream.context == context.handle;
    ensure(same, ACL_ERROR_RT_STREAM_CONTEXT, || "a stream of another context than the thread's".into())?;
    Ok(stream)
}

fn wait(w: &Arc<World>, handle: aclrtStream, timeout: Option<Duration>) -> Answer {
    let stream = resolve(w, handle)?;
    w.trace.count("sync", 1);
    stream.not_captured(w, "synchronising")?;
    stream.synchronize(w, timeout)
}

/// Waits for all streams of a card; the first fault is the answer.
pub fn synchronize_device(w: &Arc<World>, device: usize) -> Answer {
    let mut streams: Vec<_> = w.streams.all().into_iter().filter(|stream| stream.device == device).collect();
    streams.extend(w.contexts.all().iter().filter(|c| c.device == device).map(|c| default_stream(w, c)));
    streams.iter().map(|stream| stream.synchronize(w, None)).fold(Ok(()), Answer::and)
}

impl Stream {
    /// The default stream of a context.
    pub fn start(w: &Arc<World>, context: &Context) -> Arc<Stream> {
        Stream::new(w, context, 0)
    }

    fn new(w: &Arc<World>, context: &Context, handle: usize) -> Arc<Stream> {
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

    /// Whether a place is done; from now on somebody wants it.
    pub fn is_done(&self, place: u64) -> bool {
        let mut state = self.state();
        let done = state.n_done >= place;
        state.wanted = state.wanted.max(place);
        drop(state);
        self.changed.notify_all();
        done
    }

    /// Waits for a place; false after the timeout.
    pub fn reach(&self, place: u64, timeout: Duration) -> bool {
        let mut state = self.state();
        state.wanted = state.wanted.max(place);
        self.changed.notify_all();
        let waited = self.changed.wait_timeout_while(state, timeout, |state| state.n_done < place);
        waited.unwrap_or_else(PoisonError::into_inner).0.n_done >= place
    }

    /// The worker ends after what is enqueued.
    pub fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        state.wanted = u64::MAX;
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
            let may_start = |s: &State| !s.tasks.is_empty() && (!lazy || s.n_done < s.wanted);
            let ended = |s: &State| s.closed && s.tasks.is_empty();
            let idle = |s: &mut State| !(may_start(s) || ended(s));
            let state = self.changed.wait_while(self.state(), idle);
            let mut state = state.unwrap_or_else(PoisonError::into_inner);
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
                    crate::lock(&w.cards[self.device]).broken = Some(fault.clone());
                }
                // Later work goes on; the newest fault is the one that is seen.
                state.fault = Some(fault);
            }
            state.n_done += 1;
            drop(state);
            self.changed.notify_all();
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        crate::lock(&self.state)
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
