//! A stream: commands for its queue, which the CPU's kernels execute.

use crate::device::{Card, Slot};
use crate::event::SimEvent;
use crate::profile::{Fault, When};
use crate::program::{Program, Step, memory_of};
use crate::queue::{Mark, Queue};
use crate::run::Run;
use llmrt_cpu::stream::CpuStream;
use llmrt_plugin::{Error, Event, GraphView, Plan, Result, Scratch, Stream, StreamFeatures, TensorView};
use std::any::Any;
use std::sync::Arc;

/// A stream of a simulated device.
pub struct SimStream {
    queue: Queue<CpuStream>,
    scratch: Option<Scratch>,
    card: Arc<Card>,
    /// The run of the last graph: what comes between graphs belongs to it or to the one that follows.
    last_run: Option<Run>,
    _slot: Slot,
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
    /// A stream of this device, which computes with `kernels`.
    pub fn new(
        kernels: CpuStream,
        (when, seed): (When, u64),
        scratch: Option<Scratch>,
        card: Arc<Card>,
        slot: Slot,
    ) -> Result<SimStream> {
        let queue = Queue::new(kernels, when, seed)?;
        card.scratch.watch(queue.watch());
        Ok(SimStream { queue, scratch, card, last_run: None, _slot: slot })
    }

    /// Everything enqueued so far.
    pub(crate) fn mark(&self) -> Mark {
        self.queue.mark()
    }

    /// Enqueues work of a group.
    pub(crate) fn push(&self, work: impl FnOnce() -> Result<()> + Send + 'static) -> Result<()> {
        self.queue.push(self.last_run, Box::new(move |_| work()))
    }

    fn enqueue(&mut self, program: Arc<Program>, run_id: u64) -> Result<()> {
        let run = Run::new(self.card.shared.host, run_id);
        self.last_run = Some(run);
        for i in 0..program.steps.len() {
            let (program, card) = (program.clone(), self.card.clone());
            let command = move |kernels: &mut CpuStream| {
                let step = &program.steps[i];
                card.meter.pause(step.n_bytes(), Some(run));
                if run.is_cancelled() {
                    return Err(Error::cancelled());
                }
                match step {
                    Step::Stage(operand) => operand.run(),
                    Step::Compute { nodes, staged, weights } => card
                        .meter
                        .paced(*weights, run, || program.run(nodes.clone(), staged, run.id(), kernels)),
                }
            };
            self.queue.push(Some(run), Box::new(command))?;
        }
        Ok(())
    }
}

impl Stream for SimStream {
    fn compute(&mut self, graph: &GraphView<'_>) -> Result<()> {
        let program = Program::new(graph, &self.card, &mut self.scratch)?;
        self.enqueue(Arc::new(program), graph.run_id())
    }

    fn synchronize(&mut self) -> Result<()> {
        self.queue.synchronize()
    }

    fn features(&self) -> StreamFeatures {
        StreamFeatures { transfers: true, copies: true, events: true, plans: true }
    }

    unsafe fn set_async(&mut self, t: &TensorView<'_>, src: *const u8, n: u64, off: u64) -> Result<()> {
        let (memory, at) = (memory_of(t)?.clone(), t.offset().saturating_add(off));
        let (src, meter, run) = (HostBytes(src.cast_mut()), self.card.meter.clone(), self.last_run);
        let command = move |_: &mut CpuStream| {
            meter.pause(n, run);
            // SAFETY: the host keeps the source until this was reached.
            unsafe { memory.write(at, src.ptr(), n) }
        };
        self.queue.push(run, Box::new(command))
    }

    unsafe fn get_async(&mut self, t: &TensorView<'_>, dst: *mut u8, n: u64, off: u64) -> Result<()> {
        let (memory, at) = (memory_of(t)?.clone(), t.offset().saturating_add(off));
        let (dst, meter, run) = (HostBytes(dst), self.card.meter.clone(), self.last_run);
        let command = move |_: &mut CpuStream| {
            meter.pause(n, run);
            // SAFETY: the host keeps the target, and does not read it, until this was reached.
            unsafe { memory.read(at, dst.ptr(), n) }
        };
        self.queue.push(run, Box::new(command))
    }

    fn copy_async(
        &mut self,
        from: &mut dyn Stream,
        dst: &TensorView<'_>,
        src: &TensorView<'_>,
    ) -> Result<()> {
        let from = (from as &mut dyn Any).downcast_mut::<SimStream>();
        let from = from.ok_or_else(|| Error::unsupported("the other stream is not of this plugin"))?;
        if from.card.number != self.card.number && !(self.card.meter.p2p() && from.card.meter.p2p()) {
            return Err(Error::unsupported("these devices cannot reach each other"));
        }
        let (to, source, ready) = (memory_of(dst)?.clone(), memory_of(src)?.clone(), from.queue.mark());
        let (at, start, n, meter) = (dst.offset(), src.offset(), src.nbytes(), self.card.meter.clone());
        let run = self.last_run;
        let command = move |_: &mut CpuStream| {
            ready.wait(None)?;
            meter.pause(n, run);
            to.copy(at, &source, start, n)
        };
        self.queue.push(run, Box::new(command))
    }

    fn event_record(&mut self, event: &dyn Event) -> Result<()> {
        own(event)?.record(self.queue.mark());
        Ok(())
    }

    fn event_wait(&mut self, event: &dyn Event) -> Result<()> {
        let Some(mark) = own(event)?.mark() else { return Ok(()) };
        if self.card.profile.faults.contains(&Fault::IgnoresEvents) {
            return Ok(());
        }
        self.queue.push(self.last_run, Box::new(move |_| mark.wait(None).map(|_| ())))
    }

    fn plan_create(&mut self, graph: &GraphView<'_>) -> Result<Box<Plan>> {
        Ok(Box::new(Arc::new(Program::new(graph, &self.card, &mut self.scratch)?)))
    }

    fn plan_update(&mut self, plan: &mut Plan, graph: &GraphView<'_>) -> Result<()> {
        *own_plan(plan)? = Arc::new(Program::new(graph, &self.card, &mut self.scratch)?);
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

fn own_plan(plan: &mut Plan) -> Result<&mut Arc<Program>> {
    plan.downcast_mut().ok_or_else(|| Error::invalid("a plan that is not of this plugin"))
}
