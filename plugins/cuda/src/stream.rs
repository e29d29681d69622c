//! A stream of work on a device.

use crate::buffer::{Place, places};
use crate::call::{Call, Launch};
use crate::driver::cu;
use crate::event::GpuEvent;
use crate::gpu::Gpu;
use crate::live::LiveStream;
use crate::modules::Modules;
use crate::ops;
use crate::peers;
use crate::plan::{Captured, GpuPlan, MAX_PART};
use crate::sys::*;
use llmrt_plugin::{
    CaptureCache, CapturedPlan, Error, Event, GraphView, Host, InFlight, Plan, Result, Scope, Scratch,
    Stream, StreamFeatures, StreamParams, TensorView,
};
use std::any::Any;
use std::ffi::c_void;
use std::sync::Arc;

/// How work is done, as set by options.
#[derive(Clone, Copy)]
pub struct Settings {
    /// Whether runs were cancelled.
    pub host: Host,
    /// Captured graphs that each keeps.
    pub n_graphs: usize,
    /// Whether neighbouring nodes may become one launch.
    pub fuses: bool,
    /// Whether products by wgmma are used where they pass their trial.
    pub wgmma: bool,
}

/// A stream.
pub struct GpuStream {
    /// The device.
    pub(crate) gpu: Arc<Gpu>,
    modules: Arc<Modules>,
    /// The driver's handle.
    pub(crate) raw: CUstream,
    /// The same for those who wait for all streams.
    pub(crate) live: Arc<LiveStream>,
    scratch: Option<Scratch>,
    /// Captured graphs of this stream's plans.
    pub(crate) graphs: CaptureCache<Captured>,
    /// Parts of runs that may not have ended.
    pub(crate) in_flight: InFlight<GpuEvent>,
    /// Whether neighbouring nodes may become one launch.
    fuses: bool,
    /// Events that enqueued work may still come to.
    kept: Vec<GpuEvent>,
    /// The first error that left the stream of no use: it is the answer from then on.
    broken: Option<Error>,
}

// SAFETY: a handle that every thread may use after entering the device, one at a time, as the ABI specifies.
unsafe impl Send for GpuStream {}

impl GpuStream {
    /// A stream that waits for no other.
    pub fn new(
        gpu: &Arc<Gpu>,
        modules: &Arc<Modules>,
        params: &StreamParams,
        how: &Settings,
    ) -> Result<GpuStream> {
        gpu.enter()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the output is ours.
        unsafe {
            cu!(gpu.driver, cuStreamCreateWithPriority(&mut raw, CU_STREAM_NON_BLOCKING, params.priority))?;
        }
        Ok(GpuStream {
            gpu: gpu.clone(),
            modules: modules.clone(),
            raw,
            live: gpu.streams.add(raw),
            scratch: params.scratch,
            graphs: CaptureCache::new(how.n_graphs),
            in_flight: InFlight::new(how.host, MAX_PART),
            fuses: how.fuses,
            kept: Vec::new(),
            broken: None,
        })
    }

    /// Makes the device the thread's; an error if the stream is of no use any more.
    pub(crate) fn enter(&self) -> Result<()> {
        match &self.broken {
            Some(e) => Err(e.clone()),
            None => self.gpu.enter(),
        }
    }

    /// Remembers an error that reaches farther than its call.
    fn note<T>(&mut self, result: Result<T>) -> Result<T> {
        if let Err(e) = &result
            && e.scope != Scope::Call
        {
            self.broken.get_or_insert_with(|| e.clone());
        }
        result
    }

    /// The launches of a graph. Scratch memory that they use has the same addresses in every run.
    pub(crate) fn launches(&mut self, graph: &GraphView<'_>) -> Result<Vec<Launch>> {
        let mut all = Vec::with_capacity(graph.n_nodes());
        self.each_node(graph, |_, launches| {
            all.append(launches);
            Ok(())
        })?;
        Ok(all)
    }

    /// Does `then` with the launches of each node, or of several that are one launch, while the scratch memory that they
    /// use is theirs.
    fn each_node(
        &mut self,
        graph: &GraphView<'_>,
        mut then: impl FnMut(&mut InFlight<GpuEvent>, &mut Vec<Launch>) -> Result<()>,
    ) -> Result<()> {
        let work: Vec<_> =
            graph.nodes().enumerate().filter(|(_, node)| node.dst().n_elements() > 0).collect();
        let nodes: Vec<_> = work.iter().map(|(_, node)| *node).collect();
        let (mut launches, mut kept, mut at) = (Vec::new(), None, 0);
        let mut done = Ok(());
        while done.is_ok() && at < nodes.len() {
            let mut call = Call {
                gpu: &self.gpu,
                modules: &self.modules,
                scratch: self.scratch.as_mut(),
                pieces: Vec::new(),
                kept: &mut kept,
                uses_kept: false,
                launches: &mut launches,
                fuses: self.fuses,
            };
            let some = ops::compute_some(&mut call, &nodes[at..]).map_err(|e| e.at_node(work[at].0));
            done = some.and_then(|some| {
                at += some;
                then(&mut self.in_flight, call.launches)
            });
            if done.is_err() || at == nodes.len() {
                call.forget();
            }
        }
        done
    }

    /// After launches were enqueued for a run: bounds what is in flight; an error if the run was cancelled.
    pub(crate) fn enqueued(&mut self, run_id: u64, n_launches: usize) -> Result<()> {
        enqueued(&mut self.in_flight, &self.gpu, self.raw, run_id, n_launches)
    }

    /// Enqueues launches.
    pub(crate) fn enqueue(&self, launches: &[Launch]) -> Result<()> {
        launches.iter().try_for_each(|launch| launch.enqueue(&self.gpu, self.raw))
    }

    /// Byte `off` of a tensor on this device.
    fn address(&self, t: &TensorView<'_>, off: u64) -> Result<CUdeviceptr> {
        let place = Place::of(t)?;
        match place.is_on(&self.gpu) {
            true => Ok(place.address + off),
            false if place.gpu.is_none() => Err(Error::unsupported("memory of the host, in stream order")),
            false => Err(Error::invalid(format!("`{}` is on another device", t.name()))),
        }
    }
}

impl Stream for GpuStream {
    fn features(&self) -> StreamFeatures {
        StreamFeatures { transfers: true, copies: true, events: true, plans: true }
    }

    fn compute(&mut self, graph: &GraphView<'_>) -> Result<()> {
        self.enter()?;
        let (gpu, raw, run_id) = (self.gpu.clone(), self.raw, graph.run_id());
        self.in_flight.check(run_id)?;
        let done = self.each_node(graph, |in_flight, launches| {
            let n = launches.len();
            launches.drain(..).try_for_each(|launch| launch.enqueue(&gpu, raw))?;
            enqueued(in_flight, &gpu, raw, run_id, n)
        });
        self.note(done)
    }

    fn synchronize(&mut self) -> Result<()> {
        self.enter()?;
        // SAFETY: a live stream of the entered device.
        let done = unsafe { cu!(self.gpu.driver, cuStreamSynchronize(self.raw)) };
        self.note(done)?;
        self.kept.clear();
        self.in_flight.clear();
        self.graphs.drop_evicted();
        Ok(())
    }

    unsafe fn set_async(&mut self, t: &TensorView<'_>, src: *const u8, n: u64, off: u64) -> Result<()> {
        if t.layout_id() != 0 {
            return Err(Error::invalid(format!("`{}` is sealed", t.name())));
        }
        self.enter()?;
        let (dst, n) = (self.address(t, off)?, n as usize);
        // SAFETY: the host checked the range and keeps the source.
        let sent = unsafe { cu!(self.gpu.driver, cuMemcpyHtoDAsync_v2(dst, src.cast(), n, self.raw)) };
        self.note(sent)
    }

    unsafe fn get_async(&mut self, t: &TensorView<'_>, dst: *mut u8, n: u64, off: u64) -> Result<()> {
        if t.layout_id() != 0 {
            return Err(Error::unsupported("an asynchronous read of a sealed weight"));
        }
        self.enter()?;
        let (src, n) = (self.address(t, off)?, n as usize);
        // SAFETY: the host checked the range and keeps the target.
        let sent = unsafe { cu!(self.gpu.driver, cuMemcpyDtoHAsync_v2(dst.cast(), src, n, self.raw)) };
        self.note(sent)
    }

    fn copy_async(
        &mut self,
        from: &mut dyn Stream,
        dst: &TensorView<'_>,
        src: &TensorView<'_>,
    ) -> Result<()> {
        let from = (from as &mut dyn Any).downcast_mut::<GpuStream>();
        let from = from.ok_or_else(|| Error::unsupported("the source is a stream of another plugin"))?;
        let (to, at) = places(dst, src)?;
        let ours = to.gpu.is_none() || to.is_on(&self.gpu);
        let theirs = at.gpu.is_none() || at.is_on(&from.gpu);
        // To the host goes what is on this stream's device, or nothing at all.
        let is_near = to.gpu.is_some() || at.is_on(&self.gpu);
        if !(ours && theirs && is_near) {
            return Err(Error::unsupported("a copy of what is on neither of two devices"));
        }
        self.enter()?;
        if let (Some(a), Some(b)) = (&to.gpu, &at.gpu)
            && a.number != b.number
        {
            peers::connect(a, b);
        }
        let done = GpuEvent::new(&from.gpu)?;
        from.event_record(&done)?;
        self.event_wait(&done)?;
        self.kept.push(done);
        let (driver, n, raw) = (self.gpu.driver.clone(), src.nbytes() as usize, self.raw);
        // SAFETY: the host checked both tensors, which have equal sizes, and keeps their buffers; contexts of open devices.
        let sent = unsafe {
            match (&to.gpu, &at.gpu) {
                (Some(a), Some(b)) if a.number == b.number => {
                    cu!(driver, cuMemcpyDtoDAsync_v2(to.address, at.address, n, raw))
                }
                (Some(a), Some(b)) => {
                    cu!(driver, cuMemcpyPeerAsync(to.address, a.context()?, at.address, b.context()?, n, raw))
                }
                (Some(_), None) => {
                    cu!(driver, cuMemcpyHtoDAsync_v2(to.address, at.address as *const c_void, n, raw))
                }
                (None, _) => {
                    cu!(driver, cuMemcpyDtoHAsync_v2(to.address as *mut c_void, at.address, n, raw))
                }
            }
        };
        self.note(sent)
    }

    fn event_record(&mut self, event: &dyn Event) -> Result<()> {
        self.enter()?;
        let event = ours(event)?;
        // SAFETY: a live stream and a live event of one device.
        let recorded = unsafe { cu!(self.gpu.driver, cuEventRecord(event, self.raw)) };
        self.note(recorded)
    }

    fn event_wait(&mut self, event: &dyn Event) -> Result<()> {
        self.enter()?;
        let event = ours(event)?;
        // SAFETY: a live stream; a live event, maybe of another device, which the driver allows.
        let waits = unsafe { cu!(self.gpu.driver, cuStreamWaitEvent(self.raw, event, 0)) };
        self.note(waits)
    }

    fn plan_create(&mut self, graph: &GraphView<'_>) -> Result<Box<Plan>> {
        self.enter()?;
        let launches = self.launches(graph);
        Ok(Box::new(GpuPlan::new(self.note(launches)?)))
    }

    fn plan_update(&mut self, plan: &mut Plan, graph: &GraphView<'_>) -> Result<()> {
        self.enter()?;
        let launches = self.launches(graph);
        // The host waited for the plan's work, so nothing of the old one is in use.
        *own(plan)? = GpuPlan::new(self.note(launches)?);
        Ok(())
    }

    fn plan_compute(&mut self, plan: &mut Plan, run_id: u64) -> Result<()> {
        self.enter()?;
        self.in_flight.check(run_id)?;
        let enqueued = own(plan)?.run(self, run_id);
        self.note(enqueued)
    }

    fn native_handle(&mut self) -> *mut c_void {
        self.raw.cast()
    }
}

fn enqueued(
    in_flight: &mut InFlight<GpuEvent>,
    gpu: &Arc<Gpu>,
    stream: CUstream,
    run_id: u64,
    n_launches: usize,
) -> Result<()> {
    // SAFETY: a live stream and a live event of the entered device.
    let record = |event: &GpuEvent| unsafe { cu!(gpu.driver, cuEventRecord(event.as_raw(), stream)) };
    in_flight.enqueued(run_id, n_launches, || GpuEvent::new(gpu), record)
}

fn own(plan: &mut Plan) -> Result<&mut GpuPlan> {
    plan.downcast_mut().ok_or_else(|| Error::invalid("a plan of another plugin"))
}

fn ours(event: &dyn Event) -> Result<CUevent> {
    let event = (event as &dyn Any).downcast_ref::<GpuEvent>();
    event.map(GpuEvent::as_raw).ok_or_else(|| Error::invalid("an event of another plugin"))
}

impl Drop for GpuStream {
    fn drop(&mut self) {
        let mut live = self.live.lock();
        *live = None;
        if self.gpu.enter().is_ok() {
            // SAFETY: a live stream that no other thread waits for; it is waited for here, because destroying it does not.
            unsafe {
                let _ = cu!(self.gpu.driver, cuStreamSynchronize(self.raw));
                let _ = cu!(self.gpu.driver, cuStreamDestroy_v2(self.raw));
            }
        }
    }
}
