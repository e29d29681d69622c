//! Graphs: work recorded instead of run, and launched any number of times, with the addresses it was recorded with.

use crate::fault::{Answer, ensure, fault};
use crate::runtime::context::current;
use crate::runtime::queue::Stream;
use crate::runtime::stream::resolve;
use crate::runtime::task::Task;
use crate::sys::*;
use crate::world::{World, api, put};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread::ThreadId;

/// Waiting, while capturing, for an event from outside.
pub const ISOLATION: i32 = 107_024;
/// Tasks of one graph.
const MAX_TASKS: usize = 1 << 20;

/// A graph, also while it is being captured.
pub struct Graph {
    handle: usize,
    device: usize,
    mode: aclmdlRICaptureMode,
    thread: ThreadId,
    state: Mutex<State>,
    n_running: AtomicU64,
}

struct State {
    phase: Phase,
    tasks: Vec<Task>,
    /// The stream it began in, and those that came in by events.
    streams: Vec<Arc<Stream>>,
    /// Streams with work that no other one waited for.
    loose: BTreeSet<usize>,
}

#[derive(Clone, Copy, PartialEq)]
enum Phase {
    Open,
    Invalid,
    Done,
}

api! { cann_acl;
    fn aclmdlRICaptureBegin(stream: aclrtStream, mode: aclmdlRICaptureMode) w => {
        ensure(w.chip.capture, ACL_ERROR_RT_FEATURE_NOT_SUPPORT, || "the chip captures nothing".into())?;
        ensure((0..=2).contains(&mode), ACL_ERROR_RT_PARAM_INVALID, || format!("mode {mode}"))?;
        ensure(!stream.is_null(), ACL_ERROR_RT_STREAM_CAPTURE_IMPLICIT, || "the default stream".into())?;
        let stream = resolve(w, stream)?;
        stream.not_captured(w, "aclmdlRICaptureBegin")?;
        w.graphs.insert_with(|handle| {
            let graph = Arc::new(Graph {
                handle,
                device: stream.device,
                mode,
                thread: std::thread::current().id(),
                state: Mutex::new(State {
                    phase: Phase::Open,
                    tasks: Vec::new(),
                    streams: vec![stream.clone()],
                    loose: BTreeSet::new(),
                }),
                n_running: AtomicU64::new(0),
            });
            stream.set_capture(Some(graph.clone()));
            graph
        });
        Ok(())
    }
    fn aclmdlRICaptureEnd(stream: aclrtStream, out: *mut aclmdlRI) w => {
        let stream = resolve(w, stream)?;
        let Some(graph) = stream.capture() else {
            return fault(ACL_ERROR_RT_STREAM_NOT_CAPTURED, "the stream is not captured");
        };
        let here = std::thread::current().id() == graph.thread || graph.mode == ACL_MODEL_RI_CAPTURE_MODE_RELAXED;
        ensure(here, ACL_ERROR_RT_STREAM_CAPTURE_WRONG_THREAD, || "another thread began it".into())?;
        let mut state = graph.state.lock();
        let first = state.streams[0].handle == stream.handle;
        ensure(first, ACL_ERROR_RT_STREAM_CAPTURE_UNMATCHED, || "it began in another stream".into())?;
        state.streams.iter().for_each(|stream| stream.set_capture(None));
        if state.phase == Phase::Invalid {
            drop(state);
            w.graphs.remove(graph.handle);
            return fault(ACL_ERROR_RT_CAPTURE_INVALIDATED, "an earlier call was not allowed while capturing");
        }
        state.phase = Phase::Done;
        let (loose, n_streams) = (state.loose.len(), state.streams.len());
        drop(state);
        if loose > 0 {
            w.graphs.remove(graph.handle);
            return fault(ACL_ERROR_RT_STREAM_UNJOINED, format!("nothing waits for the work of {loose} streams"));
        }
        take_streams(w, &graph, n_streams)?;
        put(out, graph.handle as aclmdlRI)
    }
    fn aclmdlRICaptureGetInfo(stream: aclrtStream, status: *mut aclmdlRICaptureStatus, out: *mut aclmdlRI) w => {
        let graph = resolve(w, stream)?.capture();
        let phase = graph.as_ref().map(|graph| graph.state.lock().phase);
        put(status, match phase {
            None => ACL_MODEL_RI_CAPTURE_STATUS_NONE,
            Some(Phase::Invalid) => ACL_MODEL_RI_CAPTURE_STATUS_INVALIDATED,
            Some(_) => ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE,
        })?;
        if out.is_null() { Ok(()) } else { put(out, graph.map_or(0, |graph| graph.handle) as aclmdlRI) }
    }
    fn aclmdlRIExecuteAsync(graph: aclmdlRI, stream: aclrtStream) w => {
        let stream = resolve(w, stream)?;
        stream.not_captured(w, "launching a graph")?;
        let Some(graph) = w.graphs.get(graph as usize) else { return fault(ACL_ERROR_RT_PARAM_INVALID, "no such graph") };
        let tasks = {
            let state = graph.state.lock();
            ensure(state.phase == Phase::Done, ACL_ERROR_RT_PARAM_INVALID, || "its capture did not end".into())?;
            state.tasks.clone()
        };
        ensure(graph.device == stream.device, ACL_ERROR_RT_PARAM_INVALID, || "a graph of another card".into())?;
        w.trace.count("graph", 1);
        graph.n_running.fetch_add(1, SeqCst);
        let all = Task::new("graph", move |w| {
            let mut answer = Ok(());
            for fault in tasks.iter().filter_map(|task| task.run(w).err()) {
                answer = Err(fault);
            }
            graph.n_running.fetch_sub(1, SeqCst);
            answer
        });
        stream.enqueue(w, all).map(|_| ())
    }
    fn aclmdlRIDestroy(graph: aclmdlRI) w => {
        let Some(found) = w.graphs.get(graph as usize) else { return fault(ACL_ERROR_RT_PARAM_INVALID, "no such graph") };
        ensure(!found.is_open(), ACL_ERROR_RT_PARAM_INVALID, || "its capture did not end".into())?;
        let idle = found.n_running.load(SeqCst) == 0;
        ensure(idle, ACL_ERROR_RT_MODEL_RUNNING, || "it is still running".into())?;
        w.graphs.remove(graph as usize);
        let n = found.state.lock().streams.len();
        w.cards[found.device].lock().n_streams -= n;
        Ok(())
    }
}

/// A graph keeps as many streams of its card as it was recorded from.
fn take_streams(w: &World, graph: &Graph, n: usize) -> Answer {
    let limit = if w.config.streams > 0 { w.config.streams } else { w.chip.streams };
    let mut card = w.cards[graph.device].lock();
    if card.n_streams + n > limit {
        drop(card);
        w.graphs.remove(graph.handle);
        return fault(ACL_ERROR_RT_RESOURCE_ALLOC_FAIL, format!("no stream of {limit} is left for a graph"));
    }
    card.n_streams += n;
    Ok(())
}

impl Graph {
    /// Adds a task of a stream.
    pub fn record(&self, stream: usize, task: Task) -> Answer {
        let mut state = self.state.lock();
        let valid = state.phase == Phase::Open && state.tasks.len() < MAX_TASKS;
        ensure(valid, ACL_ERROR_RT_CAPTURE_INVALIDATED, || "the capture was invalidated".into())?;
        if state.streams[0].handle != stream {
            state.loose.insert(stream);
        }
        state.tasks.push(task);
        Ok(())
    }

    /// A stream waits for an event that was recorded in another one of this capture: it comes in, the other is waited for.
    pub fn join(self: &Arc<Graph>, stream: &Arc<Stream>, from: usize) -> Answer {
        let captured = stream.capture();
        if captured.as_ref().is_some_and(|graph| graph.handle != self.handle) {
            return fault(ACL_ERROR_RT_STREAM_CAPTURE_CONFLICT, "the stream is captured by another graph");
        }
        if captured.is_none() {
            stream.set_capture(Some(self.clone()));
        }
        let mut state = self.state.lock();
        if captured.is_none() {
            state.streams.push(stream.clone());
            state.loose.insert(stream.handle);
        }
        if from != stream.handle {
            state.loose.remove(&from);
        }
        Ok(())
    }

    /// Whether it is being captured.
    pub fn is_open(&self) -> bool {
        self.state.lock().phase != Phase::Done
    }

    /// After a call that is not allowed.
    pub fn invalidate(&self) {
        let mut state = self.state.lock();
        if state.phase == Phase::Open {
            state.phase = Phase::Invalid;
        }
    }
}

/// Whether a stream's work goes into a graph.
pub fn is_capturing(stream: &Stream) -> bool {
    stream.capture().is_some()
}

/// A capture that the calling thread has to respect.
pub fn active_for_thread(w: &World) -> Option<Arc<Graph>> {
    let here = std::thread::current().id();
    w.graphs.all().into_iter().filter(|graph| graph.is_open()).find(|graph| match graph.mode {
        ACL_MODEL_RI_CAPTURE_MODE_GLOBAL => true,
        ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL => graph.thread == here,
        _ => false,
    })
}

/// Refuses what is not ordered after streams while a thread captures.
pub fn forbid(w: &World, what: &str) -> Answer {
    let Some(graph) = active_for_thread(w) else { return Ok(()) };
    graph.invalidate();
    fault(ACL_ERROR_RT_CAPTURE_MODE_NOT_SUPPORT, format!("{what} while capturing"))
}

/// Refuses to wait for a card while one of its streams is captured.
pub fn forbid_waits(w: &Arc<World>, device: usize) -> Answer {
    let _ = current(w)?;
    let graph = w.graphs.all().into_iter().find(|graph| graph.device == device && graph.is_open());
    let Some(graph) = graph else { return Ok(()) };
    graph.invalidate();
    fault(ACL_ERROR_RT_STREAM_CAPTURED, "waiting for the card while one of its streams is captured")
}
