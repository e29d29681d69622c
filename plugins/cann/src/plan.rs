//! Plans: the operators of a graph planned once and launched at every run; from the second run on, where the chip can,
//! recorded by the runtime as graphs of about [`MAX_PART`] operators, one after the other.
//!
//! Operators that the library does not let launch twice are planned again at every run; recorded they need not be. Memory
//! that a plan was given is the host's again when the plan is made: the addresses stay valid, and a stream runs in order.

use crate::call::{Launch, Object};
use crate::runtime::{Runtime, acl};
use crate::stream::CardStream;
use crate::sys::*;
use llmrt_plugin::{CaptureCache, CaptureSlot, CapturedPlan, Error, GraphView, Result};
use std::ffi::c_void;
use std::sync::Arc;

/// Captured graphs that a stream keeps unless an option sets another number. Each takes streams of the card.
pub const GRAPHS: usize = 12;

/// Operators of a part: between two parts a run looks for a cancel. At 10 to 500 microseconds an operator it takes up to a
/// quarter of a second.
pub const MAX_PART: usize = 512;

/// A plan.
pub struct CardPlan {
    graph: GraphView<'static>,
    /// `None`: planned again at every run.
    steps: Option<Recording>,
    slot: Arc<CaptureSlot<Captured>>,
}

// SAFETY: addresses and handles that every thread may use after entering the card, one at a time, as the ABI specifies.
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

    fn launch(&self, steps: &[Step], stream: aclrtStream) -> Result<()> {
        steps.iter().try_for_each(|s| {
            // SAFETY: a repeatable executor, whose objects live as long as this; the workspace has the size that the plan
            // returned, stays mapped as long as the plan, and is used in stream order.
            let launched = unsafe { (s.launch)(s.workspace, s.size, s.executor, stream) };
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
        self.steps.as_ref().map_or(1, |steps| steps.parts().len())
    }

    fn capture(&self, stream: &mut CardStream) -> Result<Vec<Captured>> {
        let Some(steps) = &self.steps else {
            let mut capture = Some(Capture::begin(stream)?);
            let (mut graphs, mut n_launches) = (Vec::new(), 0);
            let walked = stream.walk(&self.graph, |stream, n| {
                n_launches += n;
                if n_launches >= MAX_PART
                    && let Some(part) = capture.take()
                {
                    graphs.push(part.end(n_launches)?);
                    n_launches = 0;
                    capture = Some(Capture::begin(stream)?);
                }
                Ok(())
            });
            let last = capture.map(|part| part.end(n_launches)).transpose();
            walked?;
            graphs.extend(last?);
            return Ok(graphs);
        };
        let part = |part: &[Step]| {
            let capture = Capture::begin(stream)?;
            let launched = steps.launch(part, stream.raw);
            let captured = capture.end(part.len());
            launched.and(captured)
        };
        steps.parts().map(part).collect()
    }

    fn launch(stream: &mut CardStream, part: &Captured, run_id: u64) -> Result<()> {
        part.launch(stream.raw)?;
        stream.enqueued(run_id, part.n_launches)
    }

    fn enqueue(&self, stream: &mut CardStream, run_id: u64) -> Result<()> {
        let Some(steps) = &self.steps else {
            return stream.walk(&self.graph, |stream, n| stream.enqueued(run_id, n));
        };
        steps.parts().try_for_each(|part| {
            steps.launch(part, stream.raw)?;
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

/// The operators of a graph; `None` if one of them cannot be launched twice.
fn record(stream: &mut CardStream, graph: &GraphView<'_>) -> Result<Option<Recording>> {
    stream.recording = Some(Recording::new(&stream.runtime));
    let walked = stream.walk(graph, |_, _| Ok(()));
    let recording = stream.recording.take();
    match walked {
        Ok(()) => Ok(recording),
        Err(_) if recording.is_some_and(|r| r.refused) => Ok(None),
        Err(e) => Err(e),
    }
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
