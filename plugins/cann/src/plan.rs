//! Plans: the operators of a graph planned once and launched at every run; from the second run on, where the chip can,
//! recorded by the runtime as one graph that takes one launch.
//!
//! Operators that the library does not let launch twice are planned anew at every run; recorded they need not be. Memory
//! that a plan was given is the host's again when the plan is made: the addresses stay good, and one stream runs in order.

use crate::call::{Launch, Object};
use crate::runtime::{Runtime, acl};
use crate::stream::CardStream;
use crate::sys::*;
use llmrt_plugin::{Error, GraphView, Result};
use std::ffi::c_void;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Captured graphs that a stream keeps when nobody says otherwise. Each takes streams of the card.
pub const GRAPHS: usize = 12;

/// A plan.
pub struct CardPlan {
    graph: GraphView<'static>,
    /// `None`: planned anew at every run.
    steps: Option<Recording>,
    slot: Arc<Slot>,
}

// SAFETY: addresses and handles that every thread may use after entering the card, one at a time, as the ABI says.
unsafe impl Send for CardPlan {}

/// An operator that was planned.
pub struct Step {
    /// Its name.
    pub name: &'static str,
    /// The second phase.
    pub launch: Launch,
    /// Memory it works in.
    pub workspace: *mut c_void,
    /// Bytes of it.
    pub size: u64,
    /// The first phase's result.
    pub executor: *mut aclOpExecutor,
}

/// Planned operators that may be launched often, and what they were planned with.
pub struct Recording {
    runtime: Arc<Runtime>,
    steps: Vec<Step>,
    /// The vendor's objects, which executors point to.
    pub objects: Vec<Object>,
    /// An operator cannot be launched twice.
    refused: bool,
}

impl Recording {
    fn new(runtime: &Arc<Runtime>) -> Recording {
        Recording { runtime: runtime.clone(), steps: Vec::new(), objects: Vec::new(), refused: false }
    }

    /// Keeps an operator that was planned just now.
    pub fn keep(&mut self, runtime: &Runtime, step: Step) -> Result<()> {
        let repeatable = runtime.cann.object.aclSetAclOpExecutorRepeatable;
        // SAFETY: an executor planned just now.
        let code = repeatable.map_or(ACLNN_ERR_PARAM_INVALID, |f| unsafe { f(step.executor) });
        let name = step.name;
        self.steps.push(step);
        self.refused |= code != ACL_SUCCESS;
        match code {
            ACL_SUCCESS => Ok(()),
            _ => Err(Error::unsupported(format!("{name} cannot be launched twice"))),
        }
    }

    fn launch(&self, stream: aclrtStream) -> Result<()> {
        self.steps.iter().try_for_each(|s| {
            // SAFETY: a repeatable executor, whose objects live as long as this; the workspace has the size it asked
            // for, stays mapped as long as the plan, and is used in stream order.
            let launched = unsafe { (s.launch)(s.workspace, s.size, s.executor, stream) };
            crate::error::check(&self.runtime.cann.acl, s.name, launched)
        })
    }
}

impl Drop for Recording {
    /// Executors go first: they point to the objects.
    fn drop(&mut self) {
        let library = &self.runtime.cann.object;
        for step in self.steps.drain(..) {
            // SAFETY: each executor once; the host destroys a plan when its work is done.
            let _ = library.aclDestroyAclOpExecutor.map(|f| unsafe { f(step.executor) });
        }
        for object in self.objects.drain(..).rev() {
            // SAFETY: each object once, in no list; its operators are gone.
            unsafe { object.destroy(library) };
        }
    }
}

impl CardPlan {
    /// Plans a graph, which the host keeps as long as the plan. Nothing is enqueued.
    pub fn new(stream: &mut CardStream, graph: &GraphView<'_>) -> Result<CardPlan> {
        let steps = record(stream, graph)?;
        // SAFETY: the host keeps the graph as long as the plan.
        Ok(CardPlan { graph: unsafe { graph.detach() }, steps, slot: Arc::default() })
    }

    /// Takes the same graph at other addresses.
    pub fn update(&mut self, stream: &mut CardStream, graph: &GraphView<'_>) -> Result<()> {
        let steps = record(stream, graph)?;
        // The host waited for the plan's work, so nothing of it is in use.
        self.slot = Arc::default();
        self.steps = steps;
        // SAFETY: the host keeps the graph as long as the plan.
        self.graph = unsafe { graph.detach() };
        Ok(())
    }

    /// Enqueues it.
    pub fn run(&mut self, stream: &mut CardStream) -> Result<()> {
        let n_runs = self.slot.enter();
        if let Some(launched) = self.slot.launch(stream.raw) {
            stream.graphs.used(&self.slot);
            return launched;
        }
        if n_runs > 1 && stream.graphs.n_kept > 0 && self.slot.state().may_capture {
            match self.capture(stream) {
                Ok(graph) => {
                    stream.graphs.keep(&self.slot, graph);
                    return self.slot.launch(stream.raw).unwrap_or(Ok(()));
                }
                // What cannot be captured can still be launched; what is wrong with it comes out there.
                Err(_) => self.slot.state().may_capture = false,
            }
        }
        self.enqueue(stream)
    }

    fn enqueue(&self, stream: &mut CardStream) -> Result<()> {
        match &self.steps {
            Some(steps) => steps.launch(stream.raw),
            None => stream.walk(&self.graph),
        }
    }

    /// Lets the runtime record the launches. Calls of other threads do not disturb it.
    fn capture(&self, stream: &mut CardStream) -> Result<Captured> {
        let (runtime, device, raw) = (stream.runtime.clone(), stream.device, stream.raw);
        let mode = ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: a live stream of the entered card.
        unsafe { acl!(runtime, aclmdlRICaptureBegin(raw, mode))? };
        let enqueued = self.enqueue(stream);
        let mut graph = std::ptr::null_mut();
        // SAFETY: the stream whose capture began above, on the same thread; the output is ours.
        let ended = unsafe { acl!(runtime, aclmdlRICaptureEnd(raw, &mut graph)) };
        let captured = (!graph.is_null()).then_some(Captured { runtime, device, raw: graph });
        enqueued.and(ended)?;
        captured.ok_or_else(|| Error::internal("a capture without a graph"))
    }
}

/// The operators of a graph; `None` if one of them cannot be launched twice.
fn record(stream: &mut CardStream, graph: &GraphView<'_>) -> Result<Option<Recording>> {
    stream.recording = Some(Recording::new(&stream.runtime));
    let walked = stream.walk(graph);
    let recording = stream.recording.take();
    match walked {
        Ok(()) => Ok(recording),
        Err(_) if recording.is_some_and(|r| r.refused) => Ok(None),
        Err(e) => Err(e),
    }
}

/// A graph of the runtime's, with the addresses it was captured with.
struct Captured {
    runtime: Arc<Runtime>,
    device: i32,
    raw: aclmdlRI,
}

// SAFETY: a handle that every thread may use after entering the card.
unsafe impl Send for Captured {}

impl Drop for Captured {
    fn drop(&mut self) {
        if self.runtime.enter(self.device).is_ok() {
            // SAFETY: a graph whose launches are done; nobody is left to hear of a failure.
            let _ = unsafe { acl!(self.runtime, aclmdlRIDestroy(self.raw)) };
        }
    }
}

/// What a plan and its stream both know of it.
#[derive(Default)]
pub struct Slot(Mutex<State>);

struct State {
    captured: Option<Captured>,
    /// Runs since the plan was made, or since its captured graph had to go.
    n_runs: usize,
    may_capture: bool,
}

impl Default for State {
    fn default() -> State {
        State { captured: None, n_runs: 0, may_capture: true }
    }
}

impl Slot {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a run.
    fn enter(&self) -> usize {
        let mut state = self.state();
        state.n_runs += 1;
        state.n_runs
    }

    /// Launches the captured graph, if there is one.
    fn launch(&self, stream: aclrtStream) -> Option<Result<()>> {
        let state = self.state();
        let graph = state.captured.as_ref()?;
        // SAFETY: a live graph and a live stream of one card.
        Some(unsafe { acl!(graph.runtime, aclmdlRIExecuteAsync(graph.raw, stream)) })
    }
}

/// The captured graphs of a stream's plans; the one unused longest goes first.
pub struct Graphs {
    /// How many at most.
    n_kept: usize,
    /// By last use, the latest at the end.
    slots: Vec<Weak<Slot>>,
    /// Those that had to go, while their launches may still run.
    evicted: Vec<Captured>,
}

impl Graphs {
    /// At most so many.
    pub fn new(n_kept: usize) -> Graphs {
        Graphs { n_kept, slots: Vec::new(), evicted: Vec::new() }
    }

    /// The stream is idle.
    pub fn forget_evicted(&mut self) {
        self.evicted.clear();
    }

    fn used(&mut self, slot: &Arc<Slot>) {
        let is_it = |other: &Weak<Slot>| std::ptr::eq(other.as_ptr(), Arc::as_ptr(slot));
        self.slots.retain(|other| !is_it(other) && other.strong_count() > 0);
        self.slots.push(Arc::downgrade(slot));
    }

    fn keep(&mut self, slot: &Arc<Slot>, graph: Captured) {
        slot.state().captured = Some(graph);
        self.used(slot);
        while self.slots.len() > self.n_kept {
            let Some(oldest) = self.slots.remove(0).upgrade() else { continue };
            let mut state = oldest.state();
            state.n_runs = 0;
            self.evicted.extend(state.captured.take());
        }
    }
}
