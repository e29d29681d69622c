//! Runs graphs: prepares each once, caches it by identity, replays its plans.

mod copies;
mod weights;

use super::arena::{Arena, plan_arenas};
use super::bind::{Place, describe};
use super::collectives::{self, BoundCollective, Collectives};
use super::limits::{nothing_new, strict};
use super::memory::Memory;
use super::place::DeviceIdx;
use super::prepared::{Prepared, bind_splits};
use super::report::Report;
use super::resolve::{PlacementState, Resolved, Sharing, Signature, resolve, signature};
use super::staged::{self, Staged, staging_bytes};
use crate::cancel::{CancelToken, next_run_id};
use crate::device::{Buffer, Device, Stream, TensorDesc};
use crate::error::{Error, Result};
use crate::load::{ModelFiles, Weights};
use crate::pool::PoolStats;
use llmrt_abi::{Op, Scope, Status};
use llmrt_graph::{Graph, Kind, Tensor};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

/// Most graphs kept prepared; the one unused longest goes first.
const MAX_PREPARED: usize = 64;

/// A graph and its identity, computed once.
pub struct Program {
    graph: Graph,
    uid: u64,
}

impl Program {
    /// A graph that will be run.
    pub fn new(graph: Graph) -> Program {
        let uid = graph.uid();
        Program { graph, uid }
    }

    /// The graph.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }
}

/// Runs graphs on devices, first choice first, the CPU baseline last.
pub struct Executor {
    devices: Vec<Arc<Device>>,
    streams: Vec<Stream>,
    n_threads: usize,
    memory: Memory,
    prepared: HashMap<u64, Prepared>,
    refused: HashSet<(DeviceIdx, Signature)>,
    strict: bool,
    sharing: Sharing,
    /// Of the last run.
    run_id: u64,
    cancel: CancelToken,
    /// Of the last run, until staging memory is used again.
    staged: Option<Staged>,
}

impl Executor {
    /// An executor with the weights of a [`Resolved`] graph on the same devices, and states to be put
    /// where it has them. `strict` refuses graphs of which a node would not run on the first device; `sharing` is that of
    /// the resolved graph.
    pub fn new(
        devices: Vec<Arc<Device>>,
        files: Arc<ModelFiles>,
        weights: Weights,
        states: HashMap<String, DeviceIdx>,
        n_threads: usize,
        (strict, sharing): (bool, Sharing),
    ) -> Result<Executor> {
        let streams = devices.iter().map(|d| d.stream(n_threads)).collect::<Result<_>>()?;
        let memory = Memory::new(devices.clone(), files, weights, states);
        let (prepared, refused) = (HashMap::new(), HashSet::new());
        let (run_id, cancel) = (0, CancelToken::new());
        let executor = Executor {
            devices,
            streams,
            n_threads,
            memory,
            prepared,
            refused,
            strict,
            sharing,
            run_id,
            cancel,
            staged: None,
        };
        Ok(executor)
    }

    /// Lets all later runs watch this token.
    pub fn set_cancel_token(&mut self, cancel: CancelToken) {
        self.cancel = cancel;
    }

    /// Gives all memory back. Only for an executor that another one is about to replace: the states are gone.
    pub fn clear(&mut self) {
        self.prepared.clear();
        self.staged = None;
        self.memory.clear();
        self.sharing.collectives = Collectives::default();
    }

    /// Makes a graph runnable, if it is not yet.
    pub fn prepare(&mut self, program: &Program) -> Result<()> {
        let uid = program.uid;
        if self.prepared.contains_key(&uid) {
            return Ok(());
        }
        let mut resolved = self.resolve(program)?;
        if self.strict {
            strict(&resolved.report)?;
        }
        let loaded =
            self.memory.allocate_weights(&resolved.graph, &resolved.placement, &self.sharing.neurons);
        loaded.map_err(weights::error)?;
        if self.memory.allocate_states(&resolved.graph, &resolved.placement)? {
            self.prepared.clear();
        }
        let arenas = arenas(&resolved, &self.devices)?;
        resolved.report.compute_bytes = compute_bytes(&resolved, &self.devices, &arenas)?;
        resolved.report.staging_bytes = staging_bytes(&resolved, &self.devices, &arenas);
        if self.memory.must_grow(&arenas) {
            self.prepared.clear();
            self.memory.reserve(&arenas)?;
        }
        self.staged = None;
        self.memory.reserve_staging(&resolved.report.staging_bytes)?;
        self.make_room();
        let splits = bind_splits(&resolved, &arenas, &self.memory, &self.streams, uid)?;
        self.prepared.insert(uid, Prepared { resolved, arenas, splits, last_run: self.run_id });
        Ok(())
    }

    /// Places a graph on what is known now.
    fn resolve(&self, program: &Program) -> Result<Resolved> {
        let known = PlacementState {
            homes: self.memory.homes(),
            budget: nothing_new(self.devices.len()),
            refused: self.refused.clone(),
            sharing: self.sharing.clone(),
        };
        resolve(&program.graph, &self.devices, &known)
    }

    /// Whether these tensors are all computed on one device, and only copies bring them from there; never where strict
    /// placement refuses the graph. Prepares nothing.
    pub fn keeps_together(&self, program: &Program, tensors: &[Tensor]) -> Result<bool> {
        let fresh;
        let resolved = match self.prepared.get(&program.uid) {
            Some(prepared) => &prepared.resolved,
            None => {
                fresh = self.resolve(program)?;
                &fresh
            }
        };
        let mut devices = tensors.iter().map(|&t| producer(resolved, t));
        let first = devices.next().flatten();
        let is_away = first.is_some_and(|d| self.devices[d].has_own_memory());
        let is_allowed = !self.strict || resolved.report.n_fallbacks() == 0;
        Ok(is_away && is_allowed && devices.all(|d| d == first))
    }

    /// Runs a graph with these input bytes, and waits for it.
    ///
    /// A device that refuses a node it claimed gets no such node again: the graph is placed again and run
    /// from the start. Streams that broke are recreated, once, and the graph is run again: what it wrote to states it
    /// writes to the same places.
    ///
    /// [`Error::ModelFile`] if another program truncated a model file that is used in place; its weights are lost then, so
    /// later runs fail too.
    ///
    /// [`Error::Cancelled`] if the token of [`Executor::set_cancel_token`] is set before the run is complete: the
    /// streams are idle then and can be used again, and tensors that the graph writes hold any values.
    pub fn run(&mut self, program: &Program, inputs: &[(Tensor, &[u8])]) -> Result<()> {
        let uid = program.uid;
        let mut renewed = false;
        loop {
            self.check_cancelled()?;
            let prepared = self.prepare(program).map_err(Failure::outside);
            let outcome = prepared.and_then(|()| self.run_prepared(uid, inputs));
            // Zeros in place of weights make any result worthless, and may be the cause of any failure.
            self.memory.check_files()?;
            let Err(failure) = outcome else { return Ok(()) };
            if failure.error.status() == Status::Cancelled {
                return Err(Error::Cancelled);
            }
            if !renewed && self.renew_streams()? {
                renewed = true;
                continue;
            }
            let Some((refused, on_state)) = self.retracted_support(uid, &failure) else {
                return Err(failure.error);
            };
            self.log_refusal(&refused, &failure.error);
            if !self.refused.insert(refused) {
                return Err(failure.error);
            }
            if on_state {
                self.memory.unpin_states();
            }
            self.prepared.remove(&uid);
        }
    }

    /// Logs what a device answers when it refuses a node that it claimed, once per op.
    fn log_refusal(&self, (device, node): &(DeviceIdx, Signature), error: &Error) {
        let is_same = |(d, other): &(DeviceIdx, Signature)| d == device && other.0 == node.0;
        if !self.refused.iter().any(is_same) {
            const INFO: u32 = 3;
            let op = Op::from_id(node.0).map_or("an op", Op::name);
            self.devices[*device].log(INFO, &format!("{op} runs elsewhere from now on: {error}"));
        }
    }

    fn check_cancelled(&self) -> Result<()> {
        if self.cancel.is_cancelled() { Err(Error::Cancelled) } else { Ok(()) }
    }

    /// Recreates broken streams of devices that still work; whether there were any.
    fn renew_streams(&mut self) -> Result<bool> {
        let is_broken = |stream: &Stream| stream.broken().is_some_and(|e| e.scope() == Scope::Stream);
        let broken: Vec<_> = (0..self.streams.len()).filter(|&d| is_broken(&self.streams[d])).collect();
        if !broken.is_empty() {
            // Plans are bound to streams.
            self.prepared.clear();
        }
        for &d in &broken {
            self.streams[d] = self.devices[d].stream(self.n_threads)?;
        }
        Ok(!broken.is_empty())
    }

    /// The bytes of an output of the last run: in place, if the CPU reaches them there.
    pub fn output(&self, program: &Program, t: Tensor) -> Result<Cow<'_, [u8]>> {
        let n_bytes = program.graph.def(t).n_bytes() as usize;
        if let Some(bytes) = self.output_in_place(program, t)?.filter(|bytes| bytes.len() == n_bytes) {
            return Ok(Cow::Borrowed(bytes));
        }
        let (_, place) = self.output_place(program, t)?;
        let mut bytes = vec![0; n_bytes];
        place.buffer.get(&describe(program.graph.def(t), Some(&place)), &mut bytes, 0)?;
        Ok(Cow::Owned(bytes))
    }

    /// The bytes of an output of the last run, if the CPU reaches them where they are; of one that was read in place, as many as
    /// were read.
    pub fn output_in_place(&self, program: &Program, t: Tensor) -> Result<Option<&[u8]>> {
        if let Some(staged) = self.staged.filter(|staged| (staged.program, staged.tensor) == (program.uid, t))
        {
            return self.memory.result(staged.device, staged.n_bytes);
        }
        let (device, place) = self.output_place(program, t)?;
        let def = program.graph.def(t);
        self.in_place(device, &place, &describe(def, Some(&place)), &(0..def.n_bytes()))
    }

    /// The bytes `part` of an output of the last run, in one piece or several: in place if the CPU reaches them there, else
    /// through pinned memory where the device has it.
    pub fn read(
        &mut self,
        program: &Program,
        t: Tensor,
        part: Range<u64>,
        mut use_bytes: impl FnMut(&[u8]),
    ) -> Result<()> {
        self.staged = None;
        let (device, place) = self.output_place(program, t)?;
        let tensor = describe(program.graph.def(t), Some(&place));
        if let Some(bytes) = self.in_place(device, &place, &tensor, &part)? {
            use_bytes(bytes);
            return Ok(());
        }
        let Some(staging) = self.memory.staging(device) else {
            let mut bytes = vec![0; part.end.saturating_sub(part.start) as usize];
            place.buffer.get(&tensor, &mut bytes, part.start)?;
            use_bytes(&bytes);
            return Ok(());
        };
        staged::read(staging, &place.buffer, &tensor, part, use_bytes)
    }

    /// Reads the first bytes of an output of the last run to where [`Executor::output_in_place`] finds them until the next run or
    /// read: `true` if the CPU reaches them there, in the device's memory or in pinned memory that has room for them.
    pub fn read_in_place(&mut self, program: &Program, t: Tensor, n_bytes: u64) -> Result<bool> {
        self.staged = None;
        if self.output_in_place(program, t)?.is_some() {
            return Ok(true);
        }
        let (device, place) = self.output_place(program, t)?;
        let tensor = describe(program.graph.def(t), Some(&place));
        let Some(staging) = self.memory.staging(device) else { return Ok(false) };
        let Some(bytes) = staging.bytes()?.get_mut(..n_bytes as usize) else { return Ok(false) };
        place.buffer.get(&tensor, bytes, 0)?;
        self.staged = Some(Staged { device, program: program.uid, tensor: t, n_bytes });
        Ok(true)
    }

    /// Whether an output of the last run is written by the baseline.
    pub fn is_on_baseline(&self, program: &Program, t: Tensor) -> Result<bool> {
        Ok(self.output_place(program, t)?.0 + 1 == self.devices.len())
    }

    /// Where an output is, and the device that writes it.
    fn output_place(&self, program: &Program, t: Tensor) -> Result<(DeviceIdx, Place)> {
        let prepared = self.prepared(program.uid)?;
        let graph = &prepared.resolved.graph;
        let device = producer(&prepared.resolved, t).unwrap_or(self.devices.len() - 1);
        let place = self.memory.place(graph, &prepared.arenas, device, graph.owner(t));
        let missing = || Error::invalid(graph.def(t).name.as_str(), "is no output of this graph");
        Ok((device, place.ok_or_else(missing)?))
    }

    /// The bytes, if the CPU reaches them and no work writes them.
    fn in_place(
        &self,
        device: DeviceIdx,
        place: &Place,
        tensor: &TensorDesc<'_>,
        part: &Range<u64>,
    ) -> Result<Option<&[u8]>> {
        let n = part.end.saturating_sub(part.start);
        let is_idle = self.streams[device].broken().is_none();
        let bytes = place.buffer.host_bytes(tensor, part.start, n)?.filter(|_| is_idle);
        // SAFETY: `memory` keeps the buffer, and whatever writes to outputs or gives memory back takes the executor for
        // itself; runs end synchronised, but on streams that broke.
        Ok(bytes.map(|bytes| unsafe { bytes.as_ref() }))
    }

    /// The states that have memory, by name, with their bytes.
    pub fn states(&self) -> Vec<(String, u64)> {
        self.memory.states()
    }

    /// Reads bytes of a state from `offset` on.
    pub fn read_state(&self, name: &str, offset: u64, dst: &mut [u8]) -> Result<()> {
        let buffer = self.state(name)?;
        buffer.get(&TensorDesc::bytes(0, buffer.size()), dst, offset)
    }

    /// Writes bytes of a state from `offset` on. Takes the executor for itself, so that no run reads them meanwhile.
    pub fn write_state(&mut self, name: &str, offset: u64, src: &[u8]) -> Result<()> {
        let buffer = self.state(name)?;
        buffer.set(&TensorDesc::bytes(0, buffer.size()), src, offset)
    }

    /// Copies `n` bytes of a state from one place to another, on its device where that can.
    pub fn copy_state(&mut self, name: &str, from: u64, to: u64, n: u64) -> Result<()> {
        let buffer = self.state(name)?;
        buffer.copy(&TensorDesc::bytes(to, n), buffer, &TensorDesc::bytes(from, n))
    }

    fn state(&self, name: &str) -> Result<&Buffer> {
        let missing = || Error::invalid(format!("state `{name}`"), "has no memory: no graph uses it");
        self.memory.state(name).ok_or_else(missing)
    }

    /// What happened to a prepared graph.
    pub fn report(&self, program: &Program) -> Result<&Report> {
        Ok(&self.prepared(program.uid)?.resolved.report)
    }

    /// Bytes of pinned host memory by device, on the way of inputs and results.
    pub fn staged(&self) -> Vec<u64> {
        self.memory.staged()
    }

    /// Bytes allocated: of states, and of arenas by device.
    pub fn allocated(&self) -> (u64, Vec<u64>) {
        self.memory.allocated()
    }

    /// Scratch memory by device, of those where the host manages it.
    pub fn pool_stats(&self) -> Vec<(String, PoolStats)> {
        let row = |stream: &Stream| Some((stream.device().name().to_string(), stream.pool_stats()?));
        self.streams.iter().filter_map(row).collect()
    }

    fn prepared(&self, uid: u64) -> Result<&Prepared> {
        self.prepared.get(&uid).ok_or_else(not_prepared)
    }

    /// One run. Whatever comes of it, all streams are idle afterwards.
    fn run_prepared(&mut self, uid: u64, inputs: &[(Tensor, &[u8])]) -> std::result::Result<(), Failure> {
        self.run_id = next_run_id();
        self.staged = None;
        if let Some(p) = self.prepared.get_mut(&uid) {
            p.last_run = self.run_id;
        }
        self.devices.iter().for_each(|d| d.runs().watch(self.run_id, &self.cancel));
        let outcome = self.enqueue_and_wait(uid, inputs);
        if outcome.is_err() {
            // The failure is what counts; a stream that fails here as well returns its error when it is used next.
            self.streams.iter().for_each(|stream| drop(stream.synchronize()));
        }
        self.devices.iter().for_each(|d| d.runs().forget(self.run_id));
        outcome
    }

    fn enqueue_and_wait(&mut self, uid: u64, inputs: &[(Tensor, &[u8])]) -> std::result::Result<(), Failure> {
        self.set_inputs(uid, inputs).map_err(Failure::outside)?;
        let run_id = self.run_id;
        let p = self.prepared(uid).map_err(Failure::outside)?;
        let mut early = HashMap::new();
        for (i, split) in p.splits.iter().enumerate() {
            let mut run = || -> Result<()> {
                self.check_cancelled()?;
                split.collectives.iter().try_for_each(|collective| self.put_together(p, collective))?;
                split.copies.iter().try_for_each(|copy| {
                    let read = early.remove(&(split.device, copy.tensor));
                    self.bring(p, split.device, copy, read)
                })?;
                split.plan.as_ref().map_or(Ok(()), |plan| self.streams[split.device].run(plan, run_id))?;
                for &(reader, c) in &split.begins {
                    let (to, copy) = (p.splits[reader].device, &p.splits[reader].copies[c]);
                    let read = self.begin(p, to, copy)?;
                    early.extend(read.map(|read| ((to, copy.tensor), read)));
                }
                Ok(())
            };
            run().map_err(|error| Failure { split: Some(i), error })?;
        }
        for (d, stream) in self.streams.iter().enumerate() {
            let split = p.splits.iter().rposition(|s| s.device == d);
            if split.is_some() || p.resolved.group.contains(&d) {
                stream.synchronize().map_err(|error| Failure { split, error })?;
            }
        }
        Ok(())
    }

    /// Inputs are written on every device that reads them. All streams are idle: each run ends synchronised.
    fn set_inputs(&mut self, uid: u64, inputs: &[(Tensor, &[u8])]) -> Result<()> {
        let p = self.prepared.get(&uid).ok_or_else(not_prepared)?;
        let g = &p.resolved.graph;
        for (device, arena) in p.arenas.iter().enumerate() {
            let mine: Vec<_> = inputs.iter().filter(|(t, _)| arena.offsets.contains_key(t)).collect();
            let Some(first) = mine.first() else { continue };
            let lost = || Error::invalid(g.def(first.0).name.as_str(), "has lost its memory");
            let place = |t| self.memory.place(g, &p.arenas, device, t).ok_or_else(lost);
            let buffer = place(first.0)?.buffer;
            // Where the CPU reaches the bytes a copy is a copy; elsewhere each costs a call.
            if buffer.host_ptr().is_some() {
                mine.iter().try_for_each(|(t, bytes)| {
                    let place = place(*t)?;
                    place.buffer.set(&describe(g.def(*t), Some(&place)), bytes, 0)
                })?;
                continue;
            }
            if let Some((t, bytes)) = mine.iter().find(|(t, bytes)| bytes.len() as u64 > g.def(*t).n_bytes())
            {
                let problem = format!("{} bytes for {}", bytes.len(), g.def(*t).n_bytes());
                return Err(Error::invalid(g.def(*t).name.as_str(), problem));
            }
            let pieces = mine.iter().map(|(t, bytes)| (arena.offsets[t] - arena.inputs.start, *bytes));
            let (stream, staging) = (&self.streams[device], self.memory.staging(device));
            staged::write(stream, staging, &buffer, &arena.inputs, pieces)?;
        }
        Ok(())
    }

    fn put_together(&self, p: &Prepared, collective: &BoundCollective) -> Result<()> {
        let Some(group) = self.sharing.collectives.group() else {
            return Err(Error::invalid("graph", "a collective without a group"));
        };
        let streams: Vec<_> = p.resolved.group.iter().map(|&d| &self.streams[d]).collect();
        collectives::run(&p.resolved.graph, group, &streams, collective)
    }

    /// The device and node that a failure is about, if the device had claimed the node; and whether the node
    /// is on a state.
    fn retracted_support(&self, uid: u64, failure: &Failure) -> Option<((DeviceIdx, Signature), bool)> {
        let p = self.prepared.get(&uid)?;
        let split = p.splits.get(failure.split?)?;
        let call = failure.error.call()?;
        if !failure.error.is_unsupported() || split.device + 1 == self.devices.len() {
            return None;
        }
        let (g, i) = (&p.resolved.graph, call.node? as usize);
        let node = g.nodes.get(split.nodes.clone())?.get(i)?;
        let on_state = node.src.iter().flatten().any(|&t| g.def(g.owner(t)).kind == Kind::State);
        Some(((split.device, signature(g, split.nodes.start + i)), on_state))
    }

    fn make_room(&mut self) {
        while self.prepared.len() >= MAX_PREPARED {
            let Some(oldest) = self.prepared.iter().min_by_key(|(_, p)| p.last_run).map(|(uid, _)| *uid)
            else {
                return;
            };
            self.prepared.remove(&oldest);
        }
    }
}

/// The device that writes a tensor last; `None` for one that no node writes.
pub(super) fn producer(resolved: &Resolved, t: Tensor) -> Option<DeviceIdx> {
    let g = &resolved.graph;
    let node = g.nodes.iter().rposition(|n| g.owner(n.dst) == g.owner(t))?;
    Some(resolved.placement.node[node])
}

fn not_prepared() -> Error {
    Error::invalid("graph", "was not prepared")
}

/// An error, and the split that caused it.
struct Failure {
    split: Option<usize>,
    error: Error,
}

impl Failure {
    fn outside(error: Error) -> Failure {
        Failure { split: None, error }
    }
}

/// Bytes per device for computing: its arena, and scratch memory where the host manages that.
pub fn compute_bytes(resolved: &Resolved, devices: &[Arc<Device>], arenas: &[Arena]) -> Result<Vec<u64>> {
    let rows = devices.iter().zip(arenas).zip(&resolved.workspaces);
    rows.map(|((device, arena), workspaces)| Ok(arena.total.saturating_add(device.pool_room(workspaces)?)))
        .collect()
}

/// Plans the arenas of a placed graph.
pub fn arenas(resolved: &Resolved, devices: &[Arc<Device>]) -> Result<Vec<Arena>> {
    let g = &resolved.graph;
    let align: Vec<u64> = devices.iter().map(|d| d.alignment()).collect();
    let mut failure = None;
    let arenas =
        plan_arenas(g, &resolved.placement, &resolved.splits, &resolved.group, &align, |device, t| {
            debug_assert!(matches!(g.def(t).kind, Kind::Input | Kind::Computed));
            devices[device].alloc_size(0, &describe(g.def(t), None)).unwrap_or_else(|e| {
                failure.get_or_insert(e);
                0
            })
        });
    failure.map_or(Ok(arenas), Err)
}
