//! A stream: commands for its queue, and the CPU's kernels behind it.

use crate::device::{Meter, Shared, Slot};
use crate::event::SimEvent;
use crate::memory::{Memory, SimBuffer};
use crate::profile::When;
use crate::queue::Queue;
use llmrt_cpu::stream::CpuStream;
use llmrt_plugin::{Error, Event, GraphCopy, GraphView, Plan, Result, Stream, StreamFeatures, TensorView};
use std::any::Any;
use std::sync::Arc;

/// A stream of a simulated device.
pub struct SimStream {
    queue: Queue<CpuStream>,
    device: usize,
    meter: Arc<Meter>,
    shared: Arc<Shared>,
    _slot: Slot,
}

/// A graph on the device's own addresses, and what keeps them valid.
struct Prepared {
    graph: GraphCopy,
    _memory: Vec<Arc<Memory>>,
}

/// Bytes of the host that a command reads or writes when its turn comes.
struct HostBytes(*mut u8);

// SAFETY: the host keeps the bytes valid and untouched until the stream has passed the command.
unsafe impl Send for HostBytes {}

impl HostBytes {
    fn ptr(&self) -> *mut u8 {
        self.0
    }
}

impl SimStream {
    /// A stream of the device with this number, which computes with `kernels`.
    pub fn new(
        kernels: CpuStream,
        (when, seed): (When, u64),
        device: usize,
        meter: Arc<Meter>,
        shared: Arc<Shared>,
        slot: Slot,
    ) -> Result<SimStream> {
        Ok(SimStream { queue: Queue::new(kernels, when, seed)?, device, meter, shared, _slot: slot })
    }

    fn enqueue(&self, prepared: Arc<Prepared>, run_id: u64) -> Result<()> {
        let (meter, shared) = (self.meter.clone(), self.shared.clone());
        self.queue.push(Box::new(move |kernels| {
            meter.pause(0);
            if shared.host.cancelled(run_id) {
                return Err(Error::cancelled());
            }
            kernels.compute(&prepared.graph.view())
        }))
    }
}

fn prepare(graph: &GraphView<'_>) -> Result<Arc<Prepared>> {
    let mut kept: Vec<Arc<Memory>> = Vec::new();
    let graph = GraphCopy::new(graph, |t| {
        let memory = memory_of(t)?;
        if !kept.iter().any(|m| Arc::ptr_eq(m, memory)) {
            kept.push(memory.clone());
        }
        Ok(memory.kernels().clone())
    })?;
    Ok(Arc::new(Prepared { graph, _memory: kept }))
}

fn memory_of<'a>(t: &TensorView<'a>) -> Result<&'a Arc<Memory>> {
    let buffer = t.buffer::<SimBuffer>();
    buffer
        .map(SimBuffer::memory)
        .ok_or_else(|| Error::invalid(format!("`{}` is not in memory of a simulated device", t.name())))
}

impl Stream for SimStream {
    fn compute(&mut self, graph: &GraphView<'_>) -> Result<()> {
        self.enqueue(prepare(graph)?, graph.run_id())
    }

    fn synchronize(&mut self) -> Result<()> {
        self.queue.synchronize()
    }

    fn features(&self) -> StreamFeatures {
        StreamFeatures { transfers: true, copies: true, events: true, plans: true }
    }

    unsafe fn set_async(&mut self, t: &TensorView<'_>, src: *const u8, n: u64, off: u64) -> Result<()> {
        let (memory, at) = (memory_of(t)?.clone(), t.offset().saturating_add(off));
        let (src, meter) = (HostBytes(src.cast_mut()), self.meter.clone());
        self.queue.push(Box::new(move |_| {
            meter.pause(n);
            // SAFETY: the host keeps the source until this was reached.
            unsafe { memory.write(at, src.ptr(), n) }
        }))
    }

    unsafe fn get_async(&mut self, t: &TensorView<'_>, dst: *mut u8, n: u64, off: u64) -> Result<()> {
        let (memory, at) = (memory_of(t)?.clone(), t.offset().saturating_add(off));
        let (dst, meter) = (HostBytes(dst), self.meter.clone());
        self.queue.push(Box::new(move |_| {
            meter.pause(n);
            // SAFETY: the host keeps the target, and does not look, until this was reached.
            unsafe { memory.read(at, dst.ptr(), n) }
        }))
    }

    fn copy_async(
        &mut self,
        from: &mut dyn Stream,
        dst: &TensorView<'_>,
        src: &TensorView<'_>,
    ) -> Result<()> {
        let from = (from as &mut dyn Any).downcast_mut::<SimStream>();
        let from = from.ok_or_else(|| Error::unsupported("the other stream is not of this plugin"))?;
        if from.device != self.device && !(self.meter.p2p() && from.meter.p2p()) {
            return Err(Error::unsupported("these devices cannot reach each other"));
        }
        let (to, source, ready) = (memory_of(dst)?.clone(), memory_of(src)?.clone(), from.queue.mark());
        let (at, start, n, meter) = (dst.offset(), src.offset(), src.nbytes(), self.meter.clone());
        self.queue.push(Box::new(move |_| {
            ready.wait(None)?;
            meter.pause(n);
            to.copy(at, &source, start, n)
        }))
    }

    fn event_record(&mut self, event: &dyn Event) -> Result<()> {
        own(event)?.record(self.queue.mark());
        Ok(())
    }

    fn event_wait(&mut self, event: &dyn Event) -> Result<()> {
        let Some(mark) = own(event)?.mark() else { return Ok(()) };
        self.queue.push(Box::new(move |_| mark.wait(None).map(|_| ())))
    }

    fn plan_create(&mut self, graph: &GraphView<'_>) -> Result<Box<Plan>> {
        Ok(Box::new(prepare(graph)?))
    }

    fn plan_update(&mut self, plan: &mut Plan, graph: &GraphView<'_>) -> Result<()> {
        *own_plan(plan)? = prepare(graph)?;
        Ok(())
    }

    fn plan_compute(&mut self, plan: &mut Plan, run_id: u64) -> Result<()> {
        self.enqueue(own_plan(plan)?.clone(), run_id)
    }
}

fn own(event: &dyn Event) -> Result<&SimEvent> {
    let event = (event as &dyn Any).downcast_ref();
    event.ok_or_else(|| Error::invalid("an event that is not of this plugin"))
}

fn own_plan(plan: &mut Plan) -> Result<&mut Arc<Prepared>> {
    plan.downcast_mut().ok_or_else(|| Error::invalid("a plan that is not of this plugin"))
}
