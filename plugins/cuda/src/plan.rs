//! Plans: the launches of a graph, made once; from the second run on recorded by the driver as graphs of [`MAX_PART`]
//! launches, one after the other.
//!
//! Scratch memory that a plan was given is the host's again when the plan is made: the addresses stay valid, and a stream
//! runs in order.

use crate::call::Launch;
use crate::driver::cu;
use crate::gpu::Gpu;
use crate::stream::GpuStream;
use crate::sys::*;
use llmrt_plugin::{CaptureCache, CaptureSlot, CapturedPlan, Result};
use std::sync::Arc;

/// Captured graphs that a stream keeps unless an option sets another number.
pub const GRAPHS: usize = 32;

/// Launches of a part: between two parts a run looks for a cancel. A prefill of 512 tokens by a model of 70B parameters has
/// about eight.
pub const MAX_PART: usize = 128;

/// A plan.
pub struct GpuPlan {
    launches: Vec<Launch>,
    slot: Arc<CaptureSlot<Captured>>,
}

impl GpuPlan {
    /// Of these launches. Nothing is enqueued.
    pub fn new(launches: Vec<Launch>) -> GpuPlan {
        GpuPlan { launches, slot: Arc::default() }
    }

    fn parts(&self) -> std::slice::Chunks<'_, Launch> {
        self.launches.chunks(MAX_PART)
    }
}

impl CapturedPlan for GpuPlan {
    type Stream = GpuStream;
    type Graph = Captured;

    fn slot(&self) -> &Arc<CaptureSlot<Captured>> {
        &self.slot
    }

    fn cache(stream: &mut GpuStream) -> &mut CaptureCache<Captured> {
        &mut stream.graphs
    }

    /// A graph of one launch is no faster than the launch.
    fn n_parts(&self) -> usize {
        if self.launches.len() > 1 { self.parts().len() } else { 0 }
    }

    fn capture(&self, stream: &mut GpuStream) -> Result<Vec<Captured>> {
        self.parts().map(|part| Captured::new(stream, part)).collect()
    }

    fn launch(stream: &mut GpuStream, part: &Captured, run_id: u64) -> Result<()> {
        part.launch(stream.raw)?;
        stream.enqueued(run_id, part.n_launches)
    }

    fn enqueue(&self, stream: &mut GpuStream, run_id: u64) -> Result<()> {
        self.parts().try_for_each(|part| {
            stream.enqueue(part)?;
            stream.enqueued(run_id, part.len())
        })
    }
}

/// A part as a graph of the driver's, with the addresses it was captured with.
pub struct Captured {
    gpu: Arc<Gpu>,
    raw: CUgraphExec,
    n_launches: usize,
}

// SAFETY: a handle that every thread may use after entering the device.
unsafe impl Send for Captured {}

impl Captured {
    /// Lets the driver record the launches. Calls of other threads do not disturb it.
    fn new(stream: &GpuStream, part: &[Launch]) -> Result<Captured> {
        let (gpu, raw) = (stream.gpu.clone(), stream.raw);
        let _no_other_waits = stream.live.lock();
        // SAFETY: a live stream of the entered device.
        unsafe { cu!(gpu.driver, cuStreamBeginCapture_v2(raw, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL))? };
        let enqueued = stream.enqueue(part);
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
        Ok(Captured { gpu, raw: exec, n_launches: part.len() })
    }

    fn launch(&self, stream: CUstream) -> Result<()> {
        // SAFETY: a live graph and a live stream of one device.
        unsafe { cu!(self.gpu.driver, cuGraphLaunch(self.raw, stream)) }
    }
}

impl Drop for Captured {
    fn drop(&mut self) {
        if self.gpu.enter().is_ok() {
            // SAFETY: a graph whose launches are done. A failure has no reader.
            let _ = unsafe { cu!(self.gpu.driver, cuGraphExecDestroy(self.raw)) };
        }
    }
}
