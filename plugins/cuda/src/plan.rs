//! Plans: the launches of a graph, made once; from the second run on recorded by the driver as one graph that takes one
//! launch.
//!
//! Scratch memory that a plan was given is the host's again when the plan is made: the addresses stay good, and one
//! stream runs in order.

use crate::call::Launch;
use crate::driver::cu;
use crate::gpu::Gpu;
use crate::stream::GpuStream;
use crate::sys::*;
use llmrt_plugin::Result;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Captured graphs that a stream keeps when nobody says otherwise.
pub const GRAPHS: usize = 32;

/// A plan.
pub struct GpuPlan {
    launches: Vec<Launch>,
    slot: Arc<Slot>,
}

impl GpuPlan {
    /// Of these launches. Nothing is enqueued.
    pub fn new(launches: Vec<Launch>) -> GpuPlan {
        GpuPlan { launches, slot: Arc::default() }
    }

    /// Enqueues it.
    pub fn run(&mut self, stream: &mut GpuStream) -> Result<()> {
        let n_runs = self.slot.enter();
        if let Some(launched) = self.slot.launch(stream.raw) {
            stream.graphs.used(&self.slot);
            return launched;
        }
        if n_runs > 1 && self.launches.len() > 1 && stream.graphs.n_kept > 0 && self.slot.may_capture() {
            match self.capture(stream) {
                Ok(graph) => {
                    stream.graphs.keep(&self.slot, graph);
                    return self.slot.launch(stream.raw).unwrap_or(Ok(()));
                }
                // What cannot be captured can still be launched; what is wrong with it comes out there.
                Err(_) => self.slot.state().refused = true,
            }
        }
        stream.enqueue(&self.launches)
    }

    /// Lets the driver record the launches. Calls of other threads do not disturb it.
    fn capture(&self, stream: &GpuStream) -> Result<Captured> {
        let (gpu, raw) = (stream.gpu.clone(), stream.raw);
        let _nobody_waits = stream.live.lock();
        // SAFETY: a live stream of the entered device.
        unsafe { cu!(gpu.driver, cuStreamBeginCapture_v2(raw, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL))? };
        let enqueued = stream.enqueue(&self.launches);
        let (mut graph, mut exec) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: the stream whose capture began above, on the same thread; the outputs are ours; a graph that was
        // captured is destroyed once, when the one made of it does not need it any more.
        unsafe {
            let ended = cu!(gpu.driver, cuStreamEndCapture(raw, &mut graph));
            let made = enqueued
                .and(ended)
                .and_then(|()| cu!(gpu.driver, cuGraphInstantiateWithFlags(&mut exec, graph, 0)));
            if !graph.is_null() {
                let _ = cu!(gpu.driver, cuGraphDestroy(graph));
            }
            made?;
        }
        Ok(Captured { gpu, raw: exec })
    }
}

/// A graph of the driver's, with the addresses it was captured with.
struct Captured {
    gpu: Arc<Gpu>,
    raw: CUgraphExec,
}

// SAFETY: a handle that every thread may use after entering the device.
unsafe impl Send for Captured {}

impl Drop for Captured {
    fn drop(&mut self) {
        if self.gpu.enter().is_ok() {
            // SAFETY: a graph whose launches are done; nobody is left to hear of a failure.
            let _ = unsafe { cu!(self.gpu.driver, cuGraphExecDestroy(self.raw)) };
        }
    }
}

/// What a plan and its stream both know of it.
#[derive(Default)]
pub struct Slot(Mutex<State>);

#[derive(Default)]
struct State {
    captured: Option<Captured>,
    /// Runs since the plan was made, or since its captured graph had to go.
    n_runs: usize,
    refused: bool,
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

    fn may_capture(&self) -> bool {
        !self.state().refused
    }

    /// Launches the captured graph, if there is one.
    fn launch(&self, stream: CUstream) -> Option<Result<()>> {
        let state = self.state();
        let graph = state.captured.as_ref()?;
        // SAFETY: a live graph and a live stream of one device.
        Some(unsafe { cu!(graph.gpu.driver, cuGraphLaunch(graph.raw, stream)) })
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
