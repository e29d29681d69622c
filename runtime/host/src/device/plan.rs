//! A graph prepared to be run often: the plugin's own plan, or the graph itself where it has none.

use super::stream::{Inner as StreamInner, Kept};
use super::watchdog::watched;
use super::{RawGraph, Stream, call};
use crate::error::{Error, Result};
use crate::pool::Scratch;
use crate::validate::live;
use llmrt_abi::{Status, types as c};
use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use std::time::Duration;

/// A prepared graph of one stream.
pub struct BackendPlan {
    stream: Arc<StreamInner>,
    state: Mutex<State>,
}

struct State {
    /// Lives as long as the plugin's plan.
    graph: RawGraph,
    raw: Option<*mut c::Plan>,
}

// SAFETY: the plugin's plan is touched only while its stream is entered, one thread at a time.
unsafe impl Send for State {}

impl BackendPlan {
    pub(super) fn new(stream: &Stream, graph: RawGraph) -> Result<BackendPlan> {
        stream.0.check_graph(&graph)?;
        let raw = create(&stream.0, &graph)?;
        Ok(BackendPlan { stream: stream.0.clone(), state: Mutex::new(State { graph, raw }) })
    }

    /// Nodes of its graph.
    pub fn n_nodes(&self) -> usize {
        self.state().graph.n_nodes()
    }

    /// Gives the plan a graph with the same `uid` and other addresses.
    pub fn update(&self, graph: RawGraph) -> Result<()> {
        self.stream.check_graph(&graph)?;
        let mut state = self.state();
        if graph.uid() != state.graph.uid() {
            let problem = format!("graph {} cannot stand in for graph {}", graph.uid(), state.graph.uid());
            return Err(Error::invalid("plan", problem));
        }
        let mut misuse = Ok(());
        if let Some(raw) = state.raw {
            let mut entered = self.stream.enter()?;
            // A plan that is running is not changed.
            self.stream.synchronize(&mut entered)?;
            let (be, g) = (self.stream.raw, graph.as_ptr());
            // SAFETY: a live backend, entered; its own plan; a checked graph that the plan keeps from now on.
            let result = unsafe { call!(self.stream.device, self.stream.vt, plan_update(be, raw, g)) };
            drop(entered);
            match result {
                Ok(()) => misuse = self.stream.after_compute(),
                Err(e) if is_stale(&e) => {
                    state.raw = create(&self.stream, &graph)?;
                    self.discard(raw, &state.graph);
                }
                Err(e) => return Err(e),
            }
        }
        state.graph = graph;
        misuse
    }

    pub(super) fn run(&self, stream: &Stream, run_id: u64) -> Result<()> {
        if !Arc::ptr_eq(&self.stream, &stream.0) {
            return Err(Error::invalid("plan", "it was made by another stream"));
        }
        let mut state = self.state();
        let Some(raw) = state.raw else {
            state.graph.set_run_id(run_id);
            return stream.compute_planned(&state.graph);
        };
        match self.enqueue(raw, run_id) {
            Err(e) if is_stale(&e) => {
                state.raw = create(&self.stream, &state.graph)?;
                self.discard(raw, &state.graph);
                let Some(raw) = state.raw else { return stream.compute_planned(&state.graph) };
                self.enqueue(raw, run_id)
            }
            result => result,
        }
    }

    fn enqueue(&self, raw: *mut c::Plan, run_id: u64) -> Result<()> {
        let mut entered = self.stream.enter()?;
        let (be, plan) = (self.stream.clone(), Raw(raw));
        let result = watched(&self.stream.device, "plan_compute", Duration::ZERO, move || {
            let plan = plan;
            // SAFETY: a live backend, entered by the thread that waits, and its own plan, whose graph `state` keeps.
            unsafe { call!(be.device, be.vt, plan_compute(be.raw, plan.0, run_id)) }
        });
        if matches!(&result, Err(e) if is_stale(e)) {
            return result;
        }
        entered.note(result)?;
        self.stream.after_compute()
    }

    /// Ends the plugin's plan; its graph stays as long as the stream if that is not possible.
    fn discard(&self, raw: *mut c::Plan, graph: &RawGraph) {
        if !destroy(&self.stream, raw) {
            self.stream.keep_to_the_end(graph.clone());
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

/// A plan on its way to the thread that calls for it.
struct Raw(*mut c::Plan);

// SAFETY: the ABI allows plans on any thread, one at a time.
unsafe impl Send for Raw {}

/// The plugin's plan, or `None` where it has none.
fn create(stream: &Arc<StreamInner>, graph: &RawGraph) -> Result<Option<*mut c::Plan>> {
    let mut entered = stream.enter()?;
    stream.scratch.iter().for_each(Scratch::plan_made);
    let mut raw = std::ptr::null_mut();
    // SAFETY: a live backend, entered by this thread; a checked graph, which the caller keeps with the plan.
    let result =
        unsafe { call!(stream.device, stream.vt, plan_create(stream.raw, graph.as_ptr(), &mut raw)) };
    // Preparing may enqueue work that uses the graph.
    stream.keep(&mut entered, Kept::Graph(graph.clone()));
    if result.is_err() {
        stream.scratch.iter().for_each(Scratch::plan_gone);
    }
    match result {
        Err(e) if e.is_unsupported() => Ok(None),
        Err(e) => entered.note(Err(e)).map(|()| None),
        Ok(()) if raw.is_null() => Err(stream.device.breach("plan_create", "returned OK and no plan".into())),
        Ok(()) => {
            // SAFETY: the plugin made this plan just now.
            unsafe { live::born(&stream.device.plugin, "plan_create", live::Kind::Plan, raw)? };
            drop(entered);
            if let Err(misuse) = stream.after_compute() {
                if !destroy(stream, raw) {
                    stream.keep_to_the_end(graph.clone());
                }
                return Err(misuse);
            }
            Ok(Some(raw))
        }
    }
}

/// Ends a plan that may be running. False if the stream is broken: then the plan stays, and its graph must.
fn destroy(stream: &Arc<StreamInner>, raw: *mut c::Plan) -> bool {
    let (Ok(mut entered), Some(plan_destroy)) = (stream.enter(), stream.vt.plan_destroy) else {
        return false;
    };
    let idle = stream.synchronize(&mut entered).is_ok();
    if idle {
        live::dies(&stream.device.plugin, raw);
        // SAFETY: a live backend, entered by this thread and idle; its own plan, not used afterwards.
        unsafe { plan_destroy(stream.raw, raw) }
        stream.scratch.iter().for_each(Scratch::plan_gone);
    }
    idle
}

fn is_stale(e: &Error) -> bool {
    e.status() == Status::PlanStale
}

impl Drop for BackendPlan {
    fn drop(&mut self) {
        let state = self.state();
        if let Some(raw) = state.raw {
            self.discard(raw, &state.graph);
        }
    }
}
