//! Cards that put their results together, through the vendor's library of collectives (HCCL).
//!
//! One process has all cards, each with an end of a communicator (`HcclCommInitAll`). A collective's first call on a card waits
//! for the others' in the calling thread, because they set up their ways to each other in it; so each card has a thread of its
//! own for these calls ("one card to one thread", the page of HcclCommInitAll, 8.0 to 9.1).

use crate::buffer::CardMemory;
use crate::call::Call;
use crate::error;
use crate::operand::Operand;
use crate::runtime::{Runtime, acl};
use crate::stream::CardStream;
use crate::sys::*;
use llmrt_plugin::{Error, Group, Result, Scope, Stream, TensorView};
use parking_lot::Mutex;
use std::any::Any;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// A communicator of several cards.
pub struct CardGroup {
    runtime: Arc<Runtime>,
    hccl: cann_hccl,
    cards: Vec<Arc<End>>,
    workers: Vec<Worker>,
    /// Copies from one card to all are a collective of their own; a 310P has none (HcclBroadcast's page).
    broadcasts: bool,
    /// What broke it.
    broken: Option<Error>,
}

/// A card's end.
struct End {
    card: i32,
    /// NULL once it is destroyed.
    comm: Mutex<Comm>,
}

/// A number or address for another thread.
#[derive(Clone, Copy)]
struct Comm(HcclComm);

// SAFETY: a handle that every thread may use after entering the card.
unsafe impl Send for Comm {}

/// What a card's thread does next.
type Job = Box<dyn FnOnce() + Send>;

/// A card's thread.
struct Worker {
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

/// A rank's part of one collective.
#[derive(Clone, Copy)]
struct Buffers {
    send: *mut c_void,
    recv: *mut c_void,
    stream: aclrtStream,
}

// SAFETY: addresses of a card and a stream, which every thread may pass on after entering the card.
unsafe impl Send for Buffers {}

impl CardGroup {
    /// A group of these open cards; "unsupported" where the library is missing or makes none.
    pub fn new(runtime: &Arc<Runtime>, cards: &[i32], broadcasts: bool) -> Result<CardGroup> {
        let hccl = *runtime.cann.hccl().map_err(Error::unsupported)?;
        let (Some(init), Some(first)) = (hccl.HcclCommInitAll, cards.first()) else {
            return Err(Error::unsupported("a group without cards"));
        };
        runtime.enter(*first)?;
        // Sums in one order: the A2's are in any order by default (HCCL_DETERMINISTIC's page). Communicators made later follow it,
        // and the variable of that name takes precedence (HcclSetConfig in hcomm's op_base.cc). Chips without the setting refuse it.
        let _ = hccl.HcclSetConfig.map(|f| {
            // SAFETY: numbers.
            unsafe { f(HCCL_DETERMINISTIC, 1) }
        });
        let (mut numbers, mut comms) = (cards.to_vec(), vec![std::ptr::null_mut(); cards.len()]);
        // SAFETY: as many cards as comms.
        let code = unsafe { init(numbers.len() as u32, numbers.as_mut_ptr(), comms.as_mut_ptr()) };
        let made = error::check_hccl(&runtime.cann.acl, "HcclCommInitAll", code);
        made.map_err(|e| Error { status: llmrt_plugin::Status::Unsupported, scope: Scope::Call, ..e })?;
        let end = |(&card, &comm): (&i32, &HcclComm)| Arc::new(End { card, comm: Mutex::new(Comm(comm)) });
        Ok(CardGroup {
            runtime: runtime.clone(),
            hccl,
            cards: cards.iter().zip(&comms).map(end).collect(),
            workers: cards.iter().map(|_| Worker::start()).collect::<Result<_>>()?,
            broadcasts,
            broken: None,
        })
    }

    /// Makes a call for each card, on the card's thread, and waits until all have returned. Where one fails the others may
    /// wait for it, on the host and on the card: their streams are stopped and the communicator ends, so that they return.
    fn each(
        &mut self,
        name: &'static str,
        buffers: &[Buffers],
        call: impl Fn(HcclComm, Buffers) -> HcclResult + Send + Sync + Clone + 'static,
    ) -> Result<()> {
        if let Some(e) = &self.broken {
            return Err(Error { scope: Scope::Call, ..e.clone() });
        }
        let (sender, results) = channel();
        for (rank, (worker, &at)) in self.workers.iter().zip(buffers).enumerate() {
            let (runtime, end, call, sender) =
                (self.runtime.clone(), self.cards[rank].clone(), call.clone(), sender.clone());
            let comm = *end.comm.lock();
            worker.run(Box::new(move || {
                let comm = comm;
                let called = runtime.enter(end.card).and_then(|()| {
                    let code = call(comm.0, at);
                    error::check_hccl(&runtime.cann.acl, name, code)
                });
                let _ = sender.send((rank, called));
            }));
        }
        drop(sender);
        self.collect(&results, buffers)
    }

    fn collect(&mut self, results: &Receiver<(usize, Result<()>)>, buffers: &[Buffers]) -> Result<()> {
        let mut failed: Option<Error> = None;
        for _ in 0..buffers.len() {
            let (rank, called) = results.recv().map_err(|_| Error::internal("a thread of a card ended"))?;
            if let (Err(e), None) = (called, &failed) {
                let card = self.cards[rank].card;
                let remedy =
                    "the group of cards is of no use now; `--plugin-option cann.hccl=0` does without it";
                let e = Error { message: format!("card {card}: {}; {remedy}", e.message), ..e };
                failed = Some(e.scope(Scope::Stream));
                self.stop(buffers);
            }
        }
        self.broken = failed.clone();
        failed.map_or(Ok(()), Err)
    }

    /// Ends what waits for a card that does not come.
    fn stop(&self, buffers: &[Buffers]) {
        let mut aborted = Vec::new();
        for (end, at) in self.cards.iter().zip(buffers) {
            if self.runtime.enter(end.card).is_ok() {
                // SAFETY: a live stream of the entered card. A chip or release without it has its own time limit.
                let abort = unsafe { acl!(self.runtime, aclrtStreamAbort(at.stream)) };
                aborted.extend(abort.is_ok().then_some((end.card, at.stream)));
            }
        }
        for (card, stream) in aborted {
            if self.runtime.enter(card).is_ok() {
                // SAFETY: as above. The answer is that the stream was aborted.
                let _ = unsafe { acl!(self.runtime, aclrtSynchronizeStreamWithTimeout(stream, WAIT_MS)) };
            }
        }
        self.cards.iter().for_each(|end| self.destroy(end));
    }

    /// Destroys a card's end, once. The library returns "again" while one of its collectives is on its way; an end that it does
    /// not destroy in time is kept, and tried again when the group goes.
    fn destroy(&self, end: &End) {
        let mut comm = end.comm.lock();
        let Some(destroy) = self.hccl.HcclCommDestroy.filter(|_| !comm.0.is_null()) else { return };
        for _ in 0..50 {
            if self.runtime.enter(end.card).is_err() {
                return;
            }
            // SAFETY: a live end, destroyed once.
            if unsafe { destroy(comm.0) } != HCCL_E_AGAIN {
                *comm = Comm(std::ptr::null_mut());
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
    }

    /// Waits for a card's work, in which collectives may be on their way.
    fn wait(&self, end: &End) {
        // Waiting for a card invalidates what other threads capture on it.
        let _quiet = self.runtime.captures.lock();
        if self.runtime.enter(end.card).is_ok() {
            // SAFETY: no arguments. A failure has no reader.
            let _ = unsafe { acl!(self.runtime, aclrtSynchronizeDevice()) };
        }
    }
}

/// Milliseconds in which an aborted stream ends.
const WAIT_MS: i32 = 5000;

impl Group for CardGroup {
    fn all_reduce(
        &mut self,
        streams: &mut [&mut dyn Stream],
        src: &[TensorView<'_>],
        dst: &[TensorView<'_>],
    ) -> Result<()> {
        let buffers = streams.iter_mut().zip(src.iter().zip(dst));
        let buffers = buffers.map(|(s, (src, dst))| {
            Ok(Buffers { send: address(src)?, recv: address(dst)?, stream: own(*s)?.raw })
        });
        let buffers = buffers.collect::<Result<Vec<_>>>()?;
        self.sum(&buffers, src[0].n_elements() as u64, HCCL_DATA_TYPE_FP32)
    }

    fn all_gather(
        &mut self,
        streams: &mut [&mut dyn Stream],
        src: &[TensorView<'_>],
        dst: &[TensorView<'_>],
    ) -> Result<()> {
        let (n, width, rows) = (streams.len() as i64, src[0].ne()[0] as i64, src[0].n_rows() as i64);
        let mut calls = streams.iter_mut().map(|s| Ok(Call::new(own(*s)?))).collect::<Result<Vec<_>>>()?;
        // The library puts whole tensors one after the other; of one row that is the row.
        let room = |(call, dst): (&mut Call<'_>, &TensorView<'_>)| match rows {
            1 => Ok((None, address(dst)?)),
            _ => {
                let all = call.temporary(ACL_FLOAT, &[width, rows, n])?;
                let base = all.origin().0;
                Ok((Some(all), base))
            }
        };
        let rooms = calls.iter_mut().zip(dst).map(room).collect::<Result<Vec<_>>>();
        let gathered = rooms.and_then(|rooms| {
            let buffers = calls.iter().zip(src.iter().zip(&rooms)).map(|(call, (src, (_, recv)))| {
                Ok(Buffers { send: address(src)?, recv: *recv, stream: call.stream.raw })
            });
            let buffers = buffers.collect::<Result<Vec<_>>>()?;
            let (gather, count) = (self.hccl.HcclAllGather, src[0].n_elements() as u64);
            self.each("HcclAllGather", &buffers, move |comm, at| {
                // SAFETY: tensors of these sizes that the host checked, a live stream of the entered card.
                gather.map_or(HCCL_E_NOT_SUPPORT, |f| unsafe {
                    f(at.send, at.recv, count, HCCL_DATA_TYPE_FP32, comm, at.stream)
                })
            })?;
            Ok(rooms)
        });
        let gathered = match gathered {
            Ok(rooms) => rooms,
            Err(e) => {
                calls.into_iter().for_each(|call| drop(call.finish(|_| Ok(()))));
                return Err(e);
            }
        };
        // Every call is finished, since that frees its scratch memory; the first error is returned.
        let finish = |(call, ((all, _), dst)): (Call<'_>, ((Option<Operand>, _), &TensorView<'_>))| {
            call.finish(|call| {
                let Some(all) = all else { return Ok(()) };
                call.stream.enter()?;
                let y = Operand::of(dst)?.reshape(&[width, n, rows]);
                call.copy(&all.permute(&[0, 2, 1]), &y)
            })
        };
        let finished = calls.into_iter().zip(gathered.into_iter().zip(dst)).map(finish);
        finished.fold(Ok(()), Result::and)
    }

    fn broadcast(
        &mut self,
        streams: &mut [&mut dyn Stream],
        root: usize,
        tensors: &[TensorView<'_>],
    ) -> Result<()> {
        let buffers = streams.iter_mut().zip(tensors).map(|(s, t)| {
            let at = address(t)?;
            Ok(Buffers { send: at, recv: at, stream: own(*s)?.raw })
        });
        let (buffers, n) = (buffers.collect::<Result<Vec<_>>>()?, tensors[0].nbytes());
        if self.broadcasts {
            let broadcast = self.hccl.HcclBroadcast;
            return self.each("HcclBroadcast", &buffers, move |comm, at| {
                // SAFETY: as in `all_gather`.
                broadcast.map_or(HCCL_E_NOT_SUPPORT, |f| unsafe {
                    f(at.send, n, HCCL_DATA_TYPE_INT8, root as u32, comm, at.stream)
                })
            });
        }
        // Bytes and zeros add up to the bytes.
        for (rank, at) in buffers.iter().enumerate().filter(|(rank, _)| *rank != root) {
            self.runtime.enter(self.cards[rank].card)?;
            let n = n as usize;
            // SAFETY: a tensor of these bytes that the host checked, a live stream of the entered card.
            unsafe { acl!(self.runtime, aclrtMemsetAsync(at.recv, n, 0, n, at.stream))? };
        }
        self.sum(&buffers, n, HCCL_DATA_TYPE_INT8)
    }
}

impl CardGroup {
    fn sum(&mut self, buffers: &[Buffers], count: u64, dtype: HcclDataType) -> Result<()> {
        let all_reduce = self.hccl.HcclAllReduce;
        self.each("HcclAllReduce", buffers, move |comm, at| {
            // SAFETY: tensors of these sizes that the host checked, a live stream of the entered card.
            all_reduce.map_or(HCCL_E_NOT_SUPPORT, |f| unsafe {
                f(at.send, at.recv, count, dtype, HCCL_REDUCE_SUM, comm, at.stream)
            })
        })
    }
}

impl Drop for CardGroup {
    fn drop(&mut self) {
        let is_left = |end: &&Arc<End>| !end.comm.lock().0.is_null();
        let left: Vec<_> = self.cards.iter().filter(is_left).collect();
        left.iter().for_each(|end| self.wait(end));
        left.iter().for_each(|end| self.destroy(end));
    }
}

impl Worker {
    fn start() -> Result<Worker> {
        let (jobs, queue) = channel::<Job>();
        let work = move || queue.into_iter().for_each(|job| job());
        let thread = std::thread::Builder::new().name("llmrt hccl".into()).spawn(work);
        let thread = thread.map_err(|e| Error::internal(format!("no thread for a card: {e}")))?;
        Ok(Worker { jobs: Some(jobs), thread: Some(thread) })
    }

    fn run(&self, job: Job) {
        // A thread that is gone drops the job, and with it the sender of its result.
        let _ = self.jobs.as_ref().map(|jobs| jobs.send(job));
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.jobs = None;
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Where a tensor is on its card.
fn address(t: &TensorView<'_>) -> Result<*mut c_void> {
    let memory = t.buffer::<CardMemory>();
    let memory = memory.ok_or_else(|| Error::unsupported(format!("`{}` is not on a card", t.name())))?;
    Ok(memory.address(t.offset()))
}

fn own(stream: &mut dyn Stream) -> Result<&mut CardStream> {
    let stream = (stream as &mut dyn Any).downcast_mut::<CardStream>();
    stream.ok_or_else(|| Error::invalid("a stream of another plugin"))
}
