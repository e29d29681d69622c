//! A stream of work on a device. Calls from several threads take turns.

use super::transfer::Target;
use super::watchdog::watched;
use super::{BackendPlan, Buffer, Device, Event, RawGraph, call};
use crate::error::{Error, Result};
use crate::plugin::table::{self, mandatory};
use crate::pool::{PoolKind, PoolStats, Scratch};
use crate::validate::{answers, inside, live};
use llmrt_abi::{Scope, types as c};
use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use std::time::Duration;

/// A stream of work.
#[derive(Clone)]
pub struct Stream(pub(super) Arc<Inner>);

pub(super) struct Inner {
    pub(super) raw: *mut c::Backend,
    pub(super) vt: c::BackendVt,
    /// Memory that the plugin uses within computations; outlives `raw`, and goes before the device.
    pub(super) scratch: Option<Scratch>,
    pub(super) device: Arc<Device>,
    /// Holding it is the right to call the plugin's backend.
    state: Mutex<State>,
}

/// A stream's state between calls.
#[derive(Default)]
pub(super) struct State {
    /// What enqueued work uses, kept until the next synchronisation.
    in_flight: Vec<Kept>,
    /// Graphs of plans that could not be destroyed, kept until the stream is.
    left_over: Vec<RawGraph>,
    /// The error after which the stream must be recreated.
    broken: Option<Error>,
}

/// Something that enqueued work uses.
#[allow(dead_code)] // held, not read
pub(super) enum Kept {
    Graph(RawGraph),
    Buffer(Buffer),
    Event(Event),
    Source(Arc<[u8]>),
    Target(Arc<Target>),
}

// SAFETY: the ABI allows a backend on any thread, one at a time, which `state` ensures.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Stream {
    pub(super) fn new(device: &Arc<Device>, n_threads: usize, pool: Option<PoolKind>) -> Result<Stream> {
        device.open()?;
        let scratch = Scratch::new(device, pool)?;
        let params = c::BackendParams {
            struct_size: size_of::<c::BackendParams>() as u32,
            flags: 0,
            priority: 0,
            n_threads: n_threads as u32,
            scratch: scratch.as_ref().map_or(std::ptr::null(), Scratch::as_ptr),
            native_stream: std::ptr::null_mut(),
        };
        let mut raw = std::ptr::null_mut();
        // SAFETY: an open device; params live for the call, the output is ours.
        unsafe { call!(device, device.vt, backend_create(device.raw, &params, &mut raw))? };
        if raw.is_null() {
            return Err(device.breach("backend_create", "returned OK and no backend".into()));
        }
        // SAFETY: the plugin made this backend just now; its table is read up to its `struct_size`.
        let vt = unsafe { table::read((*raw).vt) }.and_then(|vt: c::BackendVt| {
            mandatory!(vt, "backend", destroy, synchronize, compute).map(|()| vt)
        });
        let vt = vt.map_err(|e| device.breach("backend_create", e))?;
        // SAFETY: as above; the handle starts with the address of its table.
        unsafe { live::born(&device.plugin, "backend_create", live::Kind::Stream, raw)? };
        Ok(Stream(Arc::new(Inner { raw, vt, scratch, device: device.clone(), state: Mutex::default() })))
    }

    /// Its device.
    pub fn device(&self) -> &Arc<Device> {
        &self.0.device
    }

    /// Enqueues a graph, or runs it. Every tensor that a node uses must have memory.
    pub fn compute(&self, graph: &RawGraph) -> Result<()> {
        self.0.device.alive()?;
        self.0.check_memory(graph)?;
        self.compute_planned(graph)
    }

    /// The same for a graph whose memory was checked when its plan was made.
    pub(super) fn compute_planned(&self, graph: &RawGraph) -> Result<()> {
        let mut state = self.0.enter()?;
        self.0.check_seals(graph)?;
        let (be, kept) = (self.0.clone(), graph.clone());
        let result = watched(&self.0.device, "compute", Duration::ZERO, move || {
            // SAFETY: a live backend, entered by the thread that waits; the graph is self-consistent, bound and kept.
            unsafe { call!(be.device, be.vt, compute(be.raw, kept.as_ptr())) }
        });
        self.0.keep(&mut state, Kept::Graph(graph.clone()));
        self.0.check_failure("compute", graph.n_nodes(), &result)?;
        state.note(result)?;
        self.0.after_compute()
    }

    /// Waits for everything enqueued; an asynchronous error comes out here.
    pub fn synchronize(&self) -> Result<()> {
        let mut state = self.0.enter()?;
        self.0.synchronize(&mut state)
    }

    /// Marks everything enqueued so far with an event of the same device.
    pub fn record(&self, event: &Event) -> Result<()> {
        let mut state = self.0.enter()?;
        let Some(raw) = event.as_ptr().filter(|_| Arc::ptr_eq(event.device(), &self.0.device)) else {
            return self.0.synchronize(&mut state);
        };
        // SAFETY: a live backend, entered by this thread, and a live event of the same device, which is kept.
        let result = unsafe { call!(self.0.device, self.0.vt, event_record(self.0.raw, raw)) };
        if is_unsupported(&result) {
            return self.0.synchronize(&mut state);
        }
        self.0.keep(&mut state, Kept::Event(event.clone()));
        state.note(result)
    }

    /// Later work here waits for the event.
    pub fn wait(&self, event: &Event) -> Result<()> {
        let mut state = self.0.enter()?;
        let same_plugin = Arc::ptr_eq(&event.device().plugin, &self.0.device.plugin);
        if let Some(raw) = event.as_ptr().filter(|_| same_plugin) {
            // SAFETY: a live backend, entered by this thread, and a live event of the same plugin, which is kept.
            let result = unsafe { call!(self.0.device, self.0.vt, event_wait(self.0.raw, raw)) };
            if !is_unsupported(&result) {
                self.0.keep(&mut state, Kept::Event(event.clone()));
                return state.note(result);
            }
        }
        drop(state);
        event.reached()
    }

    /// Prepares a graph to be run often.
    pub fn plan(&self, graph: RawGraph) -> Result<BackendPlan> {
        BackendPlan::new(self, graph)
    }

    /// Enqueues a plan of this stream; `run_id` is the number under which it can be cancelled.
    pub fn run(&self, plan: &BackendPlan, run_id: u64) -> Result<()> {
        plan.run(self, run_id)
    }

    /// Scratch memory that the host manages for it; `None` if the plugin manages its own.
    pub fn pool_stats(&self) -> Option<PoolStats> {
        self.0.scratch.as_ref().map(Scratch::stats)
    }

    /// For tests of plugins: the n-th allocation of scratch memory from now on (1: the next) fails, once, as if the
    /// device had no memory left; 0: none does. Nothing happens where the plugin manages its own.
    pub fn fail_scratch_at(&self, n: u64) {
        self.0.scratch.iter().for_each(|scratch| scratch.fail_at(n));
    }

    /// The error after which the stream must be recreated, if there was one.
    pub fn broken(&self) -> Option<Error> {
        self.0.state.lock().broken.clone()
    }

    /// For tests of plugins: clears that error, so that the next call reaches the plugin, which keeps it too.
    pub fn forget_error(&self) {
        self.0.state.lock().broken = None;
    }

    /// Whether plans are the plugin's own, and not kept graphs.
    pub fn has_plans(&self) -> bool {
        self.0.vt.plan_create.is_some()
    }
}

impl Inner {
    /// The right to call the backend, if it still works.
    pub(super) fn enter(&self) -> Result<MutexGuard<'_, State>> {
        self.device.alive()?;
        let state = self.state.lock();
        match &state.broken {
            Some(e) => Err(e.clone()),
            None => Ok(state),
        }
    }

    /// Idle scratch memory may be released now.
    pub(super) fn after_compute(&self) -> Result<()> {
        self.scratch.as_ref().map_or(Ok(()), Scratch::after_compute)
    }

    pub(super) fn synchronize(self: &Arc<Inner>, state: &mut State) -> Result<()> {
        let be = self.clone();
        let result = watched(&self.device, "synchronize", Duration::ZERO, move || {
            // SAFETY: a live backend; the thread that holds `state` has entered, and waits.
            unsafe { call!(be.device, be.vt, synchronize(be.raw)) }
        });
        if result.is_ok() {
            state.in_flight.clear();
        }
        state.note(result)
    }

    /// Keeps the graph of a plan that cannot be destroyed, until the stream is.
    pub(super) fn keep_to_the_end(&self, graph: RawGraph) {
        let mut state = self.state.lock();
        state.left_over.push(graph);
    }

    /// Keeps something until the next synchronisation, if the device works asynchronously.
    pub(super) fn keep(&self, state: &mut State, what: Kept) {
        if self.device.info().caps & c::CAP_ASYNC != 0 {
            state.in_flight.push(what);
        }
    }

    /// A graph can run here when all its memory is there and reachable.
    pub(super) fn check_graph(&self, graph: &RawGraph) -> Result<()> {
        self.check_memory(graph)?;
        self.check_seals(graph)
    }

    fn check_memory(&self, graph: &RawGraph) -> Result<()> {
        if let Some(name) = graph.first_unbound() {
            return Err(Error::invalid(format!("tensor `{name}`"), "has no memory, and a node uses it"));
        }
        graph.buffers().try_for_each(|buffer| self.check_reachable(buffer))
    }

    fn check_seals(&self, graph: &RawGraph) -> Result<()> {
        if !self.device.validates() {
            return Ok(());
        }
        let bound = graph.tensors().filter(|t| !t.buffer.is_null());
        bound.into_iter().try_for_each(|t| self.device.check_sealed("compute", t, live::Use::Node))
    }

    /// A failure names a node that is there.
    fn check_failure(&self, call: &'static str, n_nodes: usize, result: &Result<()>) -> Result<()> {
        self.device.check_answer(call, Scope::Call, || {
            let failure = result.as_ref().err()?.call()?;
            answers::failed_node(failure.status, failure.node, n_nodes)
        })
    }

    pub(super) fn check_reachable(&self, buffer: &Buffer) -> Result<()> {
        let owner = buffer.device();
        if Arc::ptr_eq(owner, &self.device) || self.device.accepts(owner, buffer.buffer_type()) {
            return Ok(());
        }
        Err(Error::invalid(format!("{buffer:?}"), format!("{} cannot use it in place", self.device.name())))
    }
}

impl State {
    /// Remembers an error after which the stream is of no use.
    pub(super) fn note(&mut self, result: Result<()>) -> Result<()> {
        if let Err(e) = &result
            && e.scope() != Scope::Call
        {
            self.broken = Some(e.clone());
        }
        result
    }
}

/// Whether a plugin returned `UNSUPPORTED`.
pub(super) fn is_unsupported(result: &Result<()>) -> bool {
    matches!(result, Err(e) if e.is_unsupported())
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let (true, Some(destroy)) = (self.device.may_destroy(), self.vt.destroy) {
            let _inside = inside::enter();
            live::dies(&self.device.plugin, self.raw);
            // SAFETY: the last handle; plans hold one. `destroy` waits, so what is in flight is dropped afterwards.
            unsafe { destroy(self.raw) }
        } else {
            // It is unknown whether the device still works on it.
            let state = self.state.get_mut();
            std::mem::forget(std::mem::take(&mut state.in_flight));
            std::mem::forget(self.scratch.take());
            std::mem::forget(std::mem::take(&mut state.left_over));
        }
    }
}
