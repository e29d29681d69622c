//! A stream of work on a card.

use crate::buffer::{Place, places};
use crate::call::{Call, Shared};
use crate::chip::Chip;
use crate::event::CardEvent;
use crate::ops;
use crate::plan::{Captured, CardPlan, MAX_PART, Recording};
use crate::runtime::{Runtime, acl};
use crate::sys::*;
use llmrt_plugin::{
    CaptureCache, CapturedPlan, Error, Event, GraphView, Host, InFlight, Plan, Result, Scope, Scratch,
    Stream, StreamFeatures, TensorView,
};
use std::any::Any;
use std::ffi::c_void;
use std::sync::Arc;

/// A stream.
pub struct CardStream {
    /// The libraries.
    pub(crate) runtime: Arc<Runtime>,
    /// The card.
    pub(crate) device: i32,
    /// What its chip can do.
    pub(crate) chip: Chip,
    /// The runtime's handle.
    pub(crate) raw: aclrtStream,
    /// Memory for workspaces and intermediate results.
    pub(crate) scratch: Option<Scratch>,
    /// What the nodes of the graph at hand share.
    pub(crate) shared: Shared,
    /// Where operators go instead of the card, while a plan is made.
    pub(crate) recording: Option<Recording>,
    /// Captured graphs of this stream's plans.
    pub(crate) graphs: CaptureCache<Captured>,
    /// Operators launched so far.
    pub(crate) n_launched: usize,
    /// Parts of runs that may not have ended.
    pub(crate) host: Host,
    pub(crate) in_flight: InFlight<CardEvent>,
    /// Events that enqueued work may still come to: destroying one does not wait.
    kept: Vec<CardEvent>,
    /// The first error that left the stream of no use: it is the answer from then on.
    broken: Option<Error>,
}

// SAFETY: a handle that every thread may use after entering the card, one at a time, as the ABI specifies.
unsafe impl Send for CardStream {}

impl CardStream {
    /// A stream on a card.
    pub fn new(
        host: Host,
        runtime: &Arc<Runtime>,
        device: i32,
        chip: Chip,
        scratch: Option<Scratch>,
        n_graphs: usize,
    ) -> Result<CardStream> {
        runtime.enter(device)?;
        let mut raw = std::ptr::null_mut();
        let flags = (ACL_STREAM_FAST_LAUNCH | ACL_STREAM_FAST_SYNC) as u32;
        // SAFETY: the output is ours.
        unsafe { acl!(runtime, aclrtCreateStreamWithConfig(&mut raw, 0, flags))? };
        Ok(CardStream {
            runtime: runtime.clone(),
            device,
            chip,
            raw,
            scratch,
            shared: Shared::default(),
            recording: None,
            graphs: CaptureCache::new(n_graphs),
            n_launched: 0,
            host,
            in_flight: InFlight::new(host, MAX_PART),
            kept: Vec::new(),
            broken: None,
        })
    }

    /// Makes the card the thread's; an error if the stream is of no use any more.
    pub(crate) fn enter(&self) -> Result<()> {
        match &self.broken {
            Some(e) => Err(e.clone()),
            None => self.runtime.enter(self.device),
        }
    }

    /// Remembers an error that reaches farther than its call: kernels fail asynchronously, and the runtime reports
    /// it once, at the next call.
    pub(crate) fn note<T>(&mut self, result: Result<T>) -> Result<T> {
        if let Err(e) = &result
            && e.scope != Scope::Call
        {
            self.broken.get_or_insert_with(|| e.clone());
        }
        result
    }

    /// After operators were enqueued for a run: bounds what is in flight; an error if the run was cancelled.
    pub(crate) fn enqueued(&mut self, run_id: u64, n_launches: usize) -> Result<()> {
        let (runtime, device, raw) = (&self.runtime, self.device, self.raw);
        // SAFETY: a live stream and a live event of the entered card.
        let record = |event: &CardEvent| unsafe { acl!(runtime, aclrtRecordEvent(event.as_raw(), raw)) };
        self.in_flight.enqueued(run_id, n_launches, || CardEvent::new(runtime, device), record)
    }

    /// Enqueues a graph's operators, or records them. `after` gets how many were enqueued for each node.
    pub(crate) fn walk(
        &mut self,
        graph: &GraphView<'_>,
        mut after: impl FnMut(&mut CardStream, usize) -> Result<()>,
    ) -> Result<()> {
        let walked = graph.nodes().enumerate().try_for_each(|(i, node)| {
            if node.dst().n_elements() == 0 {
                return Ok(());
            }
            let before = self.n_launched;
            Call::new(self).finish(|call| ops::compute(call, &node)).map_err(|e| e.at_node(i))?;
            after(self, self.n_launched - before)
        });
        self.shared.clear(self.scratch.as_mut());
        walked
    }

    /// Byte `off` of a tensor on this card; `None` if it is in memory of the host.
    fn address(&self, t: &TensorView<'_>, off: u64) -> Result<Option<*mut c_void>> {
        let place = Place::of(t)?;
        match place.card {
            None => Ok(None),
            Some(card) if card == self.device => {
                Ok(Some(place.address.cast::<u8>().wrapping_add(off as usize).cast()))
            }
            Some(card) => Err(Error::invalid(format!("`{}` is on card {card}", t.name()))),
        }
    }

    /// A copy between host and card in stream order. Drivers that take no memory but their own in the order of a stream
    /// get it after everything before.
    ///
    /// # Safety
    /// Both sides have `n` bytes until the stream was synchronised.
    unsafe fn transfer(
        &mut self,
        dst: *mut c_void,
        src: *const c_void,
        n: u64,
        kind: aclrtMemcpyKind,
    ) -> Result<()> {
        let n = n as usize;
        // SAFETY: the caller's promise.
        let enqueued = unsafe { acl!(self.runtime, aclrtMemcpyAsync(dst, n, src, n, kind, self.raw)) };
        let result = match enqueued {
            Err(e) if e.vendor_code == ACL_ERROR_RT_INVALID_HANDLE => {
                self.synchronize()?;
                // SAFETY: as above.
                unsafe { acl!(self.runtime, aclrtMemcpy(dst, n, src, n, kind)) }
            }
            result => result,
        };
        self.note(result)
    }
}

impl Stream for CardStream {
    fn features(&self) -> StreamFeatures {
        StreamFeatures { transfers: true, copies: true, events: true, plans: true }
    }

    fn compute(&mut self, graph: &GraphView<'_>) -> Result<()> {
        self.enter()?;
        let run_id = graph.run_id();
        self.in_flight.check(run_id)?;
        let enqueued = self.walk(graph, |stream, n| stream.enqueued(run_id, n));
        self.note(enqueued)
    }

    fn synchronize(&mut self) -> Result<()> {
        self.enter()?;
        // SAFETY: a live stream of the entered card.
        let done = unsafe { acl!(self.runtime, aclrtSynchronizeStream(self.raw)) };
        self.note(done)?;
        self.kept.clear();
        self.in_flight.clear();
        self.graphs.drop_evicted();
        Ok(())
    }

    unsafe fn set_async(&mut self, t: &TensorView<'_>, src: *const u8, n: u64, off: u64) -> Result<()> {
        self.enter()?;
        let Some(dst) = self.address(t, off)? else {
            return Err(Error::unsupported("memory of the host, in stream order"));
        };
        // SAFETY: the host checked the range and keeps the source.
        unsafe { self.transfer(dst, src.cast(), n, ACL_MEMCPY_HOST_TO_DEVICE) }
    }

    unsafe fn get_async(&mut self, t: &TensorView<'_>, dst: *mut u8, n: u64, off: u64) -> Result<()> {
        if t.layout_id() != 0 {
            return Err(Error::unsupported("an asynchronous read of a sealed weight"));
        }
        self.enter()?;
        let Some(src) = self.address(t, off)? else {
            return Err(Error::unsupported("memory of the host, in stream order"));
        };
        // SAFETY: the host checked the range and keeps the target.
        unsafe { self.transfer(dst.cast(), src, n, ACL_MEMCPY_DEVICE_TO_HOST) }
    }

    fn copy_async(
        &mut self,
        from: &mut dyn Stream,
        dst: &TensorView<'_>,
        src: &TensorView<'_>,
    ) -> Result<()> {
        let from = (from as &mut dyn Any).downcast_mut::<CardStream>();
        let from = from.ok_or_else(|| Error::unsupported("the source is a stream of another plugin"))?;
        let (to, at) = places(dst, src)?;
        match (to.card, at.card) {
            (Some(to), Some(at)) if to == self.device && at == from.device => {}
            (to, None) if to == Some(self.device) => {}
            (None, at) if at == Some(from.device) => {}
            _ => return Err(Error::unsupported("a copy of what is on neither of two cards")),
        }
        let reached = if from.device == self.device { Ok(()) } else { self.reach(from.device) };
        reached?;
        let done = CardEvent::new(&from.runtime, from.device)?;
        from.event_record(&done)?;
        self.event_wait(&done)?;
        self.kept.push(done);
        // SAFETY: the host checked both tensors, which have equal sizes, and keeps their buffers.
        unsafe { self.transfer(to.address, at.address, src.nbytes(), to.kind_from(&at)) }
    }

    fn event_record(&mut self, event: &dyn Event) -> Result<()> {
        self.enter()?;
        let event = ours(event)?;
        // SAFETY: a live stream and a live event of one card.
        let recorded = unsafe { acl!(self.runtime, aclrtRecordEvent(event, self.raw)) };
        self.note(recorded)
    }

    fn event_wait(&mut self, event: &dyn Event) -> Result<()> {
        self.enter()?;
        let event = ours(event)?;
        // SAFETY: a live stream; a live event, maybe of another card, which the runtime allows.
        let waits = unsafe { acl!(self.runtime, aclrtStreamWaitEvent(self.raw, event)) };
        self.note(waits)
    }

    fn plan_create(&mut self, graph: &GraphView<'_>) -> Result<Box<Plan>> {
        self.enter()?;
        let made = CardPlan::new(self, graph);
        Ok(Box::new(self.note(made)?))
    }

    fn plan_update(&mut self, plan: &mut Plan, graph: &GraphView<'_>) -> Result<()> {
        self.enter()?;
        let updated = own(plan)?.update(self, graph);
        self.note(updated)
    }

    fn plan_compute(&mut self, plan: &mut Plan, run_id: u64) -> Result<()> {
        self.enter()?;
        self.in_flight.check(run_id)?;
        let enqueued = own(plan)?.run(self, run_id);
        self.note(enqueued)
    }

    fn native_handle(&mut self) -> *mut c_void {
        self.raw
    }
}

impl CardStream {
    /// Lets this card and another one read each other's memory; "unsupported" where the cards cannot.
    fn reach(&self, peer: i32) -> Result<()> {
        if !self.chip.peers {
            return Err(Error::unsupported(format!("card {} cannot reach card {peer}", self.device)));
        }
        self.runtime.connect(self.device, peer)?;
        self.runtime.enter(self.device)
    }
}

fn own(plan: &mut Plan) -> Result<&mut CardPlan> {
    plan.downcast_mut().ok_or_else(|| Error::invalid("a plan of another plugin"))
}

fn ours(event: &dyn Event) -> Result<aclrtEvent> {
    let event = (event as &dyn Any).downcast_ref::<CardEvent>();
    event.map(CardEvent::as_raw).ok_or_else(|| Error::invalid("an event of another plugin"))
}

impl Drop for CardStream {
    fn drop(&mut self) {
        // A stream is destroyed in its own card's context.
        if self.runtime.enter(self.device).is_ok() {
            // SAFETY: a live stream; destroying waits for its work.
            let _ = unsafe { acl!(self.runtime, aclrtDestroyStream(self.raw)) };
        }
    }
}
