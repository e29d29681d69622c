//! An engine on a thread of its own, for programs that wait for many requests at once.

use crate::core::{EngineCore, EngineEvent, RequestOutput, Runner};
use crate::error::{Error, Result};
use crate::kv::prefix::BlockHash;
use crate::request::{Request, RequestId};
use crate::stats::EngineStats;
use crate::work::Work;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;

/// Takes the events of a request on the engine's thread: it must not wait.
pub type EventSink = Box<dyn FnMut(EngineEvent) + Send>;

/// A handle to an engine, to be cloned freely. The engine ends when the last handle and all streams are gone.
#[derive(Clone)]
pub struct AsyncEngine {
    commands: Sender<Command>,
    stats: Arc<Mutex<EngineStats>>,
    work: Arc<Mutex<Work>>,
    tickets: Arc<AtomicU64>,
    thread: Arc<Mutex<Option<JoinHandle<()>>>>,
}

/// Names a request before the engine has taken it.
type Ticket = u64;

enum Command {
    Generate(Box<New>),
    Abort(RequestId),
    AbortTicket(Ticket),
    /// Sends the names of the blocks in the prefix cache.
    NameBlocks(Sender<Vec<BlockHash>>),
    /// Ends the thread once all requests have ended.
    Drain,
}

/// A request on its way to the engine.
struct New {
    request: Request,
    ticket: Ticket,
    sink: EventSink,
    /// Gets the id, or the refusal; without it a refusal is an event.
    answer: Option<Sender<Result<RequestId>>>,
}

impl AsyncEngine {
    /// Moves a core to a thread of its own.
    pub fn start<R: Runner + Send + 'static>(core: EngineCore<R>) -> Result<AsyncEngine> {
        AsyncEngine::start_watched(core, |_| ())
    }

    /// The same; `watch` is called after each step, on the engine's thread: requests wait for it.
    pub fn start_watched<R: Runner + Send + 'static>(
        core: EngineCore<R>,
        watch: impl FnMut(&mut EngineCore<R>) + Send + 'static,
    ) -> Result<AsyncEngine> {
        let (commands, received) = channel();
        let stats = Arc::new(Mutex::new(EngineStats::default()));
        let work = Arc::new(Mutex::new(core.runner().work()));
        let mut worker = Worker::new(core, Box::new(watch), stats.clone(), work.clone());
        worker.count();
        let thread = std::thread::Builder::new().name("engine".into()).spawn(move || worker.run(&received));
        let thread = thread.map_err(|e| Error::NoThread { problem: e.to_string() })?;
        let thread = Arc::new(Mutex::new(Some(thread)));
        Ok(AsyncEngine { commands, stats, work, tickets: Arc::default(), thread })
    }

    /// Queues a request. Its events come from the stream as steps are computed; a reader that is slow holds up nothing.
    pub fn generate(&self, request: Request) -> Result<RequestStream> {
        let (answer, answered) = channel();
        let (sender, events) = channel();
        // A reader that is gone has aborted its request.
        let sink = Box::new(move |event| drop(sender.send(event)));
        let guard = self.queue(request, sink, Some(answer))?;
        let id = answered.recv().map_err(|_| Error::EngineGone)??;
        Ok(RequestStream { id, events, has_ended: false, _guard: guard })
    }

    /// Queues a request without waiting; `sink` is called with its events, on the engine's thread. A request that is refused
    /// has one event, [`EngineEvent::Failed`].
    pub fn generate_with(&self, request: Request, sink: EventSink) -> Result<RequestGuard> {
        self.queue(request, sink, None)
    }

    fn queue(
        &self,
        request: Request,
        sink: EventSink,
        answer: Option<Sender<Result<RequestId>>>,
    ) -> Result<RequestGuard> {
        let ticket = self.tickets.fetch_add(1, Relaxed);
        let new = New { request, ticket, sink, answer };
        self.commands.send(Command::Generate(Box::new(new))).map_err(|_| Error::EngineGone)?;
        Ok(RequestGuard { ticket, commands: self.commands.clone() })
    }

    /// Ends a request early; its stream ends with what it has generated.
    pub fn abort(&self, id: RequestId) -> Result<()> {
        self.commands.send(Command::Abort(id)).map_err(|_| Error::EngineGone)
    }

    /// Queues, KV cache and counters after the last step.
    pub fn stats(&self) -> EngineStats {
        *lock(&self.stats)
    }

    /// The names of the blocks whose keys and values a prompt that begins with their tokens need not compute, in no order; waits
    /// for the step that is computed.
    pub fn cached_blocks(&self) -> Result<Vec<BlockHash>> {
        let (sender, names) = channel();
        self.commands.send(Command::NameBlocks(sender)).map_err(|_| Error::EngineGone)?;
        names.recv().map_err(|_| Error::EngineGone)
    }

    /// What steps have executed on devices, after the last one.
    pub fn work(&self) -> Work {
        lock(&self.work).clone()
    }

    /// Requests that wait for blocks, after the last step.
    pub fn n_waiting(&self) -> usize {
        self.stats().n_waiting
    }

    /// Requests that have blocks on the device.
    pub fn n_running(&self) -> usize {
        self.stats().n_running
    }

    /// Requests whose blocks are in host memory.
    pub fn n_swapped(&self) -> usize {
        self.stats().n_swapped
    }

    /// Takes no more requests, and returns when all have ended.
    pub fn drain(&self) {
        let _ = self.commands.send(Command::Drain);
        // Held until the end, for which other callers wait, too.
        let mut thread = lock(&self.thread);
        if let Some(thread) = thread.take() {
            let _ = thread.join();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

/// A queued request: to drop it before the end aborts the request.
pub struct RequestGuard {
    ticket: Ticket,
    commands: Sender<Command>,
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        let _ = self.commands.send(Command::AbortTicket(self.ticket));
    }
}

/// The events of a request, as they happen: an iterator that waits for the next one. To drop it before the end aborts the
/// request.
pub struct RequestStream {
    id: RequestId,
    events: Receiver<EngineEvent>,
    has_ended: bool,
    _guard: RequestGuard,
}

impl RequestStream {
    /// The request.
    pub fn id(&self) -> RequestId {
        self.id
    }

    /// Waits for the end: all texts, or the error.
    pub fn finish(mut self) -> Result<RequestOutput> {
        for event in &mut self {
            match event {
                EngineEvent::Finished(output) => return Ok(output),
                EngineEvent::Failed { error, .. } => return Err(error),
                _ => {}
            }
        }
        Err(Error::EngineGone)
    }
}

impl Iterator for RequestStream {
    type Item = EngineEvent;

    fn next(&mut self) -> Option<EngineEvent> {
        let event = if self.has_ended { None } else { self.events.recv().ok() };
        self.has_ended = event.as_ref().is_none_or(EngineEvent::is_last);
        event
    }
}

/// What is called after each step.
type Watch<R> = Box<dyn FnMut(&mut EngineCore<R>) + Send>;

/// What runs on the thread.
struct Worker<R> {
    core: EngineCore<R>,
    watch: Watch<R>,
    streams: HashMap<RequestId, Stream>,
    ids: HashMap<Ticket, RequestId>,
    totals: EngineStats,
    stats: Arc<Mutex<EngineStats>>,
    work: Arc<Mutex<Work>>,
    is_draining: bool,
}

/// Where the events of a request go.
struct Stream {
    ticket: Ticket,
    sink: EventSink,
    /// Tokens that were sent.
    n_tokens: u64,
}

impl<R: Runner> Worker<R> {
    fn new(
        core: EngineCore<R>,
        watch: Watch<R>,
        stats: Arc<Mutex<EngineStats>>,
        work: Arc<Mutex<Work>>,
    ) -> Worker<R> {
        let (streams, ids) = Default::default();
        Worker { core, watch, streams, ids, totals: EngineStats::default(), stats, work, is_draining: false }
    }

    fn run(&mut self, commands: &Receiver<Command>) {
        let mut is_open = true;
        while is_open || !self.core.is_idle() {
            is_open = self.take_commands(commands) && !self.is_draining;
            if !self.core.is_idle() {
                self.step();
            }
        }
    }

    /// Takes all commands that are there, and waits for one if there is nothing to compute. `false` when no more can come.
    fn take_commands(&mut self, commands: &Receiver<Command>) -> bool {
        if self.core.is_idle() && !self.is_draining {
            match commands.recv() {
                Ok(command) => self.execute(command),
                Err(_) => return false,
            }
        }
        loop {
            match commands.try_recv() {
                Ok(command) => self.execute(command),
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    fn execute(&mut self, command: Command) {
        match command {
            Command::Generate(new) => self.add(*new),
            Command::Abort(id) => self.abort(id),
            Command::AbortTicket(ticket) => {
                if let Some(id) = self.ids.get(&ticket) {
                    self.abort(*id);
                }
            }
            Command::NameBlocks(names) => {
                // Who waits for them may be gone.
                let _ = names.send(self.core.scheduler().pool().names().collect());
            }
            Command::Drain => self.is_draining = true,
        }
        self.count();
    }

    fn add(&mut self, new: New) {
        let New { request, ticket, mut sink, answer } = new;
        let added = if self.is_draining { Err(Error::EngineGone) } else { self.core.add(request) };
        match (answer, &added) {
            (Some(answer), _) => drop(answer.send(added.clone())),
            (None, Err(error)) => {
                self.totals.n_failed += 1;
                sink(EngineEvent::Failed { request: RequestId(ticket), error: error.clone() });
            }
            (None, Ok(_)) => {}
        }
        if let Ok(id) = added {
            self.streams.insert(id, Stream { ticket, sink, n_tokens: 0 });
            self.ids.insert(ticket, id);
        }
    }

    fn abort(&mut self, id: RequestId) {
        if let Ok(output) = self.core.abort(id) {
            self.send(EngineEvent::Finished(output));
        }
    }

    fn step(&mut self) {
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let events = self.core.step();
            (self.watch)(&mut self.core);
            events
        }));
        // Before the events: who has read the last one finds the request gone.
        *lock(&self.work) = self.core.runner().work();
        self.count();
        match outcome {
            Ok(Ok(events)) => events.into_iter().for_each(|event| self.send(event)),
            Ok(Err(error)) => self.fail_all(&error),
            Err(_) => self.fail_all(&Error::StepPanicked),
        }
        self.count();
    }

    /// The step cannot be computed, and would fail again: all requests end with the error.
    fn fail_all(&mut self, error: &Error) {
        let ids: Vec<RequestId> = self.streams.keys().copied().collect();
        for request in ids {
            let _ = self.core.abort(request);
            self.send(EngineEvent::Failed { request, error: error.clone() });
        }
    }

    fn send(&mut self, event: EngineEvent) {
        let id = event.request();
        let Some(stream) = self.streams.get_mut(&id) else { return };
        self.totals.add(&event, &mut stream.n_tokens);
        if !event.is_last() {
            return (stream.sink)(event);
        }
        let Some(mut stream) = self.streams.remove(&id) else { return };
        self.ids.remove(&stream.ticket);
        // Who has read the last event finds it counted.
        self.count();
        (stream.sink)(event);
    }

    fn count(&self) {
        let scheduler = self.core.scheduler();
        let [n_waiting, n_running, n_swapped] = scheduler.counts();
        let pool = scheduler.pool();
        *lock(&self.stats) = EngineStats {
            n_waiting,
            n_running,
            n_swapped,
            block_size: pool.block_size(),
            n_blocks: pool.n_blocks(),
            n_blocks_used: pool.n_used(),
            n_preemptions: self.core.kv_use().n_preemptions as u64,
            drafts: self.core.draft_use().unwrap_or_default(),
            ..self.totals
        };
    }
}
