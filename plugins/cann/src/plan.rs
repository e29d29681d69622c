//! Plans: the operators of a graph planned once and launched at every run; from the second run on, where the chip can,
//! recorded by the runtime as graphs of about [`MAX_PART`] operators, one after the other.
//!
//! An operator whose executor the library does not let launch twice is planned again at each launch, alone; recorded it need
//! not be. Memory that a plan was given is the host's again when the plan is made: the addresses stay valid, and a stream
//! runs in order.

use crate::buffer::CardMemory;
use crate::call::{Call, FirstPhase, Launch, Object};
use crate::runtime::{Runtime, acl};
use crate::stream::CardStream;
use crate::sys::*;
use llmrt_plugin::{CaptureCache, CaptureSlot, CapturedPlan, Error, GraphView, Result};
use std::cell::RefCell;
use std::ffi::c_void;
use std::sync::Arc;

/// Captured graphs that a stream keeps unless an option sets another number. Each takes streams of the card.
pub const GRAPHS: usize = 12;

/// Operators of a part: between two parts a run looks for a cancel. At 10 to 500 microseconds an operator it takes up to a
/// quarter of a second.
pub const MAX_PART: usize = 512;

/// A plan.
pub struct CardPlan {
    steps: Recording,
    slot: Arc<CaptureSlot<Captured>>,
}

// SAFETY: addresses and handles that every thread may use after entering the card, one at a time, as the ABI specifies.
unsafe impl Send for CardPlan {}

/// An operator that was planned.
pub struct Step {
    /// Its name.
    pub name: &'static str,
    /// The first phase.
    pub plan: FirstPhase,
    /// The second phase.
    pub launch: Launch,
    /// Memory it works in.
    pub workspace: *mut c_void,
    /// Bytes of it.
    pub size: u64,
    /// What the first phase made; `None`: made again at each launch.
    pub executor: Option<*mut aclOpExecutor>,
    /// Memory of its own for launches whose first phase requested more, the largest last; launches before may still use others.
    pub larger: RefCell<Vec<CardMemory>>,
}

/// Planned operators that are launched often, and what they were planned with.
pub struct Recording {
    runtime: Arc<Runtime>,
    steps: Vec<Step>,
    /// The vendor's objects, which executors and first phases point to.
    pub objects: Vec<Object>,
}

impl Recording {
    fn new(runtime: &Arc<Runtime>) -> Recording {
        Recording { runtime: runtime.clone(), steps: Vec::new(), objects: Vec::new() }
    }

    /// Keeps an operator that was planned just now. Its executor goes if it cannot be launched twice: refused are operators
    /// that abandon the library's cache (a ViewCopy onto itself), and what an earlier launch left in that cache
    /// (opbase, `op_executor.cpp` `SetRepeatable` and `acl_op_api.cpp`).
    pub fn keep(&mut self, mut step: Step) {
        let library = &self.runtime.cann.object;
        step.executor = step.executor.filter(|executor| {
            // SAFETY: an executor planned just now.
            let code = library.aclSetAclOpExecutorRepeatable.map(|f| unsafe { f(*executor) });
            if code != Some(ACL_SUCCESS) {
                destroy(library, *executor);
            }
            code == Some(ACL_SUCCESS)
        });
        self.steps.push(step);
    }

    /// Operators so far.
    pub fn n_steps(&self) -> usize {
        self.steps.len()
    }

    /// Takes the operators after the first `n` back.
    pub fn truncate(&mut self, n: usize) {
        let library = &self.runtime.cann.object;
        self.steps
            .drain(n..)
            .filter_map(|step| step.executor)
            .for_each(|executor| destroy(library, executor));
    }

    fn launch(&self, steps: &[Step], stream: &mut CardStream) -> Result<()> {
        steps.iter().try_for_each(|s| {
            let Some(executor) = s.executor else {
                return Call::new(stream).finish(|call| call.launch_again(s));
            };
            // SAFETY: a repeatable executor, whose objects live as long as this; the workspace has the size that the plan
            // returned, stays mapped as long as the plan, and is used in stream order.
            let launched = unsafe { (s.launch)(s.workspace, s.size, executor, stream.raw) };
            crate::error::check(&self.runtime.cann.acl, s.name, launched)
        })
    }

    fn parts(&self) -> std::slice::Chunks<'_, Step> {
        self.steps.chunks(MAX_PART)
    }
}

impl Drop for Recording {
    /// Executors go first: they point to the objects.
    fn drop(&mut self) {
        // The host destroys a plan when its work is done.
        self.truncate(0);
        let library = &self.runtime.cann.object;
        for object in self.objects.drain(..).rev() {
            // SAFETY: each object once, in no list; its operators are gone.
            unsafe { object.destroy(library) };
        }
    }
}

/// Destroys an executor that is launched no more; each is destroyed once.
pub(crate) fn destroy(library: &cann_object, executor: *mut aclOpExecutor) {
    // SAFETY: a live executor. A failure has no reader.
    let _ = library.aclDestroyAclOpExecutor.map(|f| unsafe { f(executor) });
}

impl CardPlan {
    /// Plans a graph.
    pub fn new(stream: &mut CardStream, graph: &GraphView<'_>) -> Result<CardPlan> {
        Ok(CardPlan { steps: record(stream, graph)?, slot: Arc::default() })
    }

    /// Takes the same graph at other addresses.
    pub fn update(&mut self, stream: &mut CardStream, graph: &GraphView<'_>) -> Result<()> {
        let steps = record(stream, graph)?;
        // The host waited for the plan's work, so nothing of it is in use.
        *self = CardPlan { steps, slot: Arc::default() };
        Ok(())
    }
}

impl CapturedPlan for CardPlan {
    type Stream = CardStream;
    type Graph = Captured;

    fn slot(&self) -> &Arc<CaptureSlot<Captured>> {
        &self.slot
    }

    fn cache(stream: &mut CardStream) -> &mut CaptureCache<Captured> {
        &mut stream.graphs
    }

    fn n_parts(&self) -> usize {
        self.steps.parts().len()
    }

    fn capture(&self, stream: &mut CardStream) -> Result<Vec<Captured>> {
        let runtime = stream.runtime.clone();
        let _quiet = runtime.captures.lock();
        let part = |part: &[Step]| {
            let capture = Capture::begin(stream)?;
            let launched = self.steps.launch(part, stream);
            let captured = capture.end(part.len());
            launched.and(captured)
        };
        self.steps.parts().map(part).collect()
    }

    fn launch(stream: &mut CardStream, part: &Captured, run_id: u64) -> Result<()> {
        part.launch(stream.raw)?;
        stream.enqueued(run_id, part.n_launches)
    }

    fn enqueue(&self, stream: &mut CardStream, run_id: u64) -> Result<()> {
        self.steps.parts().try_for_each(|part| {
            self.steps.launch(part, stream)?;
            stream.enqueued(run_id, part.len())
        })
    }
}

/// A capture that has begun. Calls of other threads do not disturb it.
struct Capture {
    runtime: Arc<Runtime>,
    device: i32,
    stream: aclrtStream,
}

impl Capture {
    fn begin(stream: &CardStream) -> Result<Capture> {
        let (runtime, device, raw) = (stream.runtime.clone(), stream.device, stream.raw);
        let mode = ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: a live stream of the entered card.
        unsafe { acl!(runtime, aclmdlRICaptureBegin(raw, mode))? };
        Ok(Capture { runtime, device, stream: raw })
    }

    fn end(self, n_launches: usize) -> Result<Captured> {
        let Capture { runtime, device, stream } = self;
        let mut graph = std::ptr::null_mut();
        // SAFETY: the stream whose capture began, on the same thread; the output is ours.
        let ended = unsafe { acl!(runtime, aclmdlRICaptureEnd(stream, &mut graph)) };
        let captured = (!graph.is_null()).then_some(Captured { runtime, device, raw: graph, n_launches });
        ended?;
        captured.ok_or_else(|| Error::internal("a capture without a graph"))
    }
}

/// The operators of a graph. Nothing is enqueued.
fn record(stream: &mut CardStream, graph: &GraphView<'_>) -> Result<Recording> {
    stream.recording = Some(Recording::new(&stream.runtime));
    let walked = stream.walk(graph, |_, _| Ok(()));
    let recording = stream.recording.take();
    walked?;
    recording.ok_or_else(|| Error::internal("a recording is missing"))
}

/// A part as a graph of the runtime's, with the addresses it was captured with.
pub struct Captured {
    runtime: Arc<Runtime>,
    device: i32,
    raw: aclmdlRI,
    n_launches: usize,
}

// SAFETY: a handle that every thread may use after entering the card.
unsafe impl Send for Captured {}

impl Captured {
    fn launch(&self, stream: aclrtStream) -> Result<()> {
        // SAFETY: a live graph and a live stream of one card.
        unsafe { acl!(self.runtime, aclmdlRIExecuteAsync(self.raw, stream)) }
    }
}

impl Drop for Captured {
    fn drop(&mut self) {
        if self.runtime.enter(self.device).is_ok() {
            // SAFETY: a graph whose launches are done. A failure has no reader.
            let _ = unsafe { acl!(self.runtime, aclmdlRIDestroy(self.raw)) };
        }
    }
}
