//! A communicator: the calls of its ranks find each other by their order, and their work waits on the cards for the others'.

use super::bytes;
use crate::fault::{Answer, Fault, ensure, fault};
use crate::runtime::queue::Stream;
use crate::runtime::task::Task;
use crate::sys::*;
use crate::world::World;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// A card's end of a communicator.
pub struct Comm {
    /// What it is an end of.
    pub ring: Arc<Ring>,
    /// Which card.
    pub rank: usize,
}

/// Which collective.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// A sum.
    Reduce,
    /// One after the other.
    Gather,
    /// From one to all.
    Broadcast,
}

/// What all ranks have to call alike.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct What {
    /// Which.
    pub kind: Kind,
    /// Numbers.
    pub count: u64,
    /// Their type.
    pub dtype: HcclDataType,
    /// The rank that a broadcast comes from.
    pub root: usize,
}

/// A communicator.
pub struct Ring {
    /// Cards by rank.
    pub devices: Vec<usize>,
    /// What each card has less of.
    charged: Vec<u64>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Ranks that have called each kind; a kind's ways between the cards are made when all have.
    linked: BTreeMap<Kind, BTreeSet<usize>>,
    /// Calls of each rank so far.
    n_called: BTreeMap<usize, u64>,
    /// Ranks that are in a call.
    calling: BTreeSet<usize>,
    /// By number of the call.
    ops: BTreeMap<u64, Op>,
    /// Works on cards that have not ended.
    n_busy: usize,
    n_left: usize,
    ended: bool,
}

/// One collective.
struct Op {
    what: What,
    /// Streams by rank, as they are known.
    streams: BTreeMap<usize, Arc<Stream>>,
    /// Addresses of the ranks whose work has begun.
    begun: BTreeMap<usize, (usize, usize)>,
    done: Option<Answer>,
}

/// Work on a card; gone when it was done or dropped.
struct Busy(Arc<Ring>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.state().n_busy -= 1;
    }
}

impl Ring {
    /// With its memory.
    pub fn new(w: &Arc<World>, devices: Vec<usize>) -> Answer<Arc<Ring>> {
        let mb = std::env::var("HCCL_BUFFSIZE").ok().and_then(|text| text.parse::<u64>().ok()).unwrap_or(200);
        let mut charged = Vec::new();
        for &device in &devices {
            match w.memory.charge(device, (2 * mb) << 20) {
                Ok(n) => charged.push(n),
                Err(text) => {
                    devices.iter().zip(charged).for_each(|(device, n)| w.memory.give(*device, n));
                    return fault(HCCL_E_MEMORY, text);
                }
            }
        }
        let state = Mutex::new(State { n_left: devices.len(), ..State::default() });
        Ok(Arc::new(Ring { devices, charged, state, changed: Condvar::new() }))
    }

    /// Whether work is on a card.
    pub fn is_busy(&self) -> bool {
        self.state().n_busy > 0
    }

    /// One end is destroyed.
    pub fn leave(&self, w: &World) {
        let mut state = self.state();
        state.ended = true;
        state.n_left -= 1;
        if state.n_left == 0 {
            self.devices.iter().zip(&self.charged).for_each(|(device, n)| w.memory.give(*device, *n));
        }
        drop(state);
        self.changed.notify_all();
    }

    /// A rank's call: it finds the others' by its number, waits for them if it is the first of its kind, and enqueues.
    pub fn call(
        self: &Arc<Ring>,
        w: &Arc<World>,
        end: &Comm,
        stream: &Arc<Stream>,
        what: What,
        at: (usize, usize),
    ) -> Answer {
        let (rank, n) = (end.rank, self.devices.len());
        let mut state = self.state();
        ensure(state.calling.insert(rank), HCCL_E_PARA, || {
            format!("card {} is in a call", self.devices[rank])
        })?;
        let number = *state.n_called.entry(rank).and_modify(|n| *n += 1).or_insert(1);
        let called = self.join(w, &mut state, (rank, number), stream, what).and_then(|()| {
            state.linked.entry(what.kind).or_default().insert(rank);
            self.changed.notify_all();
            let alone = |s: &mut State| s.linked.get(&what.kind).is_none_or(|all| all.len() < n) && !s.ended;
            let limit = Duration::from_secs(w.config.watchdog);
            if alone(&mut state) {
                w.trace.count("collective.waits", 1); // with the lock, which is free when the wait has begun
            }
            let late = self.changed.wait_while_for(&mut state, alone, limit).timed_out();
            if late {
                let came = state.linked.get(&what.kind).cloned().unwrap_or_default();
                w.trace.report(format!(
                    "{:?}: ranks {came:?} of {n} have called, and the others never do",
                    what.kind
                ));
                return fault(HCCL_E_TIMEOUT, "the other ranks do not call (HCCL_CONNECT_TIMEOUT)");
            }
            ensure(!state.ended, HCCL_E_INTERNAL, || "the communicator was destroyed".into())
        });
        if called.is_ok() {
            state.n_busy += 1;
        }
        drop(state);
        let enqueued = called.and_then(|()| {
            let (ring, busy, on) = (self.clone(), Busy(self.clone()), stream.clone());
            let task = Task::new("collective", move |w| {
                let _busy = &busy;
                ring.work(w, (rank, number), &on, at)
            });
            stream.enqueue(w, task).map(|_| ())
        });
        self.state().calling.remove(&rank);
        enqueued
    }

    /// All ranks call the same, in the same order.
    fn join(
        &self,
        w: &World,
        state: &mut State,
        (rank, number): (usize, u64),
        stream: &Arc<Stream>,
        what: What,
    ) -> Answer {
        ensure(!state.ended, HCCL_E_PARA, || "an end of the communicator was destroyed".into())?;
        let fails = w.config.hccl_fails == Some((rank, number));
        ensure(!fails, HCCL_E_INTERNAL, || format!("rank {rank} fails, as configured"))?;
        let new = || Op { what, streams: BTreeMap::new(), begun: BTreeMap::new(), done: None };
        let op = state.ops.entry(number).or_insert_with(new);
        if op.what != what {
            let text = format!("call {number} of rank {rank} is {what:?}, of another rank {:?}", op.what);
            w.trace.report(text.clone());
            return fault(HCCL_E_PARA, text);
        }
        op.streams.insert(rank, stream.clone());
        Ok(())
    }

    /// A rank's work on its card: the last that begins does it for all, the others wait.
    fn work(&self, w: &Arc<World>, (rank, number): (usize, u64), on: &Stream, at: (usize, usize)) -> Answer {
        let started = Instant::now();
        let n = self.devices.len();
        let mut state = self.state();
        if let Some(op) = state.ops.get_mut(&number) {
            op.begun.insert(rank, at);
            w.trace.count("collective.begun", 1);
        }
        loop {
            let Some(op) = state.ops.get_mut(&number) else { return Ok(()) };
            if let Some(done) = op.done.clone() {
                op.begun.remove(&rank);
                if op.begun.is_empty() {
                    state.ops.remove(&number);
                }
                return done;
            }
            if op.begun.len() == n {
                let done = compute(w, &self.devices, op.what, &op.begun, number);
                op.done = Some(done);
                self.changed.notify_all();
                continue;
            }
            // A thread that waits for one rank's stream waits for the others'.
            let others: Vec<_> = op.streams.values().filter(|s| s.handle != on.handle).cloned().collect();
            let begun: Vec<_> = op.begun.keys().copied().collect();
            drop(state);
            for stream in &others {
                let _ = stream.is_done(stream.n_enqueued());
            }
            if on.is_aborted() {
                return fault(ACL_ERROR_RT_STREAM_ABORT, "the stream was aborted");
            }
            // Before a wait for the stream gives up.
            if started.elapsed() > Duration::from_secs(w.config.watchdog) / 2 {
                w.trace.report(format!(
                    "call {number}: ranks {begun:?} of {n} wait, and the others never begin"
                ));
                return fault(ACL_ERROR_RT_TASK_TIMEOUT, "the other ranks do not begin (HCCL_EXEC_TIMEOUT)");
            }
            state = self.state();
            self.changed.wait_for(&mut state, Duration::from_millis(1));
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

/// Reads every rank's bytes, and writes every rank's result.
fn compute(
    w: &World,
    devices: &[usize],
    what: What,
    at: &BTreeMap<usize, (usize, usize)>,
    number: u64,
) -> Answer {
    let n_bytes = (what.count * bytes(what.dtype)) as usize;
    let span = |rank: usize, address: usize, len: usize| {
        let found = w.memory.span(address, len);
        let found = found.map_err(|text| Fault { code: ACL_ERROR_RT_PARAM_INVALID, text })?;
        ensure(found.device == devices[rank], ACL_ERROR_RT_PARAM_INVALID, || {
            format!("rank {rank} is card {}, and its memory is card {}'s", devices[rank], found.device)
        })?;
        Ok(found)
    };
    let sent = at.iter().map(|(rank, (send, _))| Ok(span(*rank, *send, n_bytes)?.read()));
    let sent = sent.collect::<Answer<Vec<Vec<u8>>>>()?;
    w.trace.count("collective", 1);
    w.trace.count("collective.bytes", n_bytes as u64);
    let result = match what.kind {
        Kind::Reduce => sum(w, &sent, what.dtype, number),
        Kind::Gather => sent.concat(),
        Kind::Broadcast => sent[what.root].clone(),
    };
    at.iter().try_for_each(|(rank, (_, recv))| {
        span(*rank, *recv, result.len())?.write(0, &result);
        Ok(())
    })
}

/// A sum in the order of the ranks, or, on chips whose sums are in any order unless that is set, in another one each time.
fn sum(w: &World, sent: &[Vec<u8>], dtype: HcclDataType, number: u64) -> Vec<u8> {
    let mut order: Vec<&Vec<u8>> = sent.iter().collect();
    if w.chip.is_a2() && !w.deterministic.load(Relaxed) {
        let n = order.len();
        order.rotate_left(w.random(&[number]) as usize % n);
    }
    let first = order[0].clone();
    order[1..].iter().fold(first, |total, more| match dtype {
        HCCL_DATA_TYPE_INT8 => total.iter().zip(*more).map(|(a, b)| a.wrapping_add(*b)).collect(),
        _ => {
            let number = |bytes: &[u8]| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            let pairs = total.chunks_exact(4).zip(more.chunks_exact(4));
            pairs.flat_map(|(a, b)| (number(a) + number(b)).to_le_bytes()).collect()
        }
    })
}
