//! An engine on a thread of its own, for programs that wait for many requests at once.

use crate::core::{EngineCore, EngineEvent, RequestOutput, Runner};
use crate::error::{Error, Result};
use crate::request::{Request, RequestId};
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// A handle to an engine, to be cloned freely. The engine ends when the last handle and all streams are gone.
#[derive(Clone)]
pub struct AsyncEngine {
    commands: Sender<Command>,
    counts: Arc<[AtomicUsize; 3]>,
    thread: Arc<Mutex<Option<JoinHandle<()>>>>,
}

enum Command {
    Generate(Box<Request>, Sender<Result<RequestId>>, Sender<EngineEvent>),
    Abort(RequestId),
    /// Ends the thread once all requests have ended.
    Drain,
}

impl AsyncEngine {
    /// Moves a core to a thread of its own.
    pub fn start<R: Runner + Send + 'static>(core: EngineCore<R>) -> Result<AsyncEngine> {
        let (commands, received) = channel();
        let counts = Arc::new([const { AtomicUsize::new(0) }; 3]);
        let mut worker = Worker { core, streams: HashMap::new(), counts: counts.clone(), is_draining: false };
        let thread = std::thread::Builder::new().name("engine".into()).spawn(move || worker.run(&received));
        let thread = thread.map_err(|e| Error::NoThread { problem: e.to_string() })?;
        Ok(AsyncEngine { commands, counts, thread: Arc::new(Mutex::new(Some(thread))) })
    }

    /// Queues a request. Its events come from the stream as steps are computed; a reader that is slow holds up nothing.
    pub fn generate(&self, request: Request) -> Result<RequestStream> {
        let (answer, answered) = channel();
        let (events, stream) = channel();
        let gone = |_| Error::EngineGone;
        self.commands
            .send(Command::Generate(Box::new(request), answer, events))
            .map_err(|_| Error::EngineGone)?;
        let id = answered.recv().map_err(gone)??;
        Ok(RequestStream { id, events: stream, commands: self.commands.clone(), has_ended: false })
    }

    /// Ends a request early; its stream ends with what it has generated.
    pub fn abort(&self, id: RequestId) -> Result<()> {
        self.commands.send(Command::Abort(id)).map_err(|_| Error::EngineGone)
    }

    /// Requests that wait for blocks, after the last step.
    pub fn n_waiting(&self) -> usize {
        self.counts[0].load(Relaxed)
    }

    /// Requests that have blocks on the device.
    pub fn n_running(&self) -> usize {
        self.counts[1].load(Relaxed)
    }

    /// Requests whose blocks are in host memory.
    pub fn n_swapped(&self) -> usize {
        self.counts[2].load(Relaxed)
    }

    /// Takes no more requests, and returns when all have ended.
    pub fn drain(&self) {
        let _ = self.commands.send(Command::Drain);
        // Held until the end, for which other callers wait, too.
        let mut thread = self.thread.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(thread) = thread.take() {
            let _ = thread.join();
        }
    }
}

/// The events of a request, as they happen: an iterator that waits for the next one. To drop it before the end aborts the
/// request.
pub struct RequestStream {
    id: RequestId,
    events: Receiver<EngineEvent>,
    commands: Sender<Command>,
    has_ended: bool,
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
        let is_last =
            |event: &EngineEvent| matches!(event, EngineEvent::Finished(_) | EngineEvent::Failed { .. });
        self.has_ended = event.as_ref().is_none_or(is_last);
        event
    }
}

impl Drop for RequestStream {
    fn drop(&mut self) {
        if !self.has_ended {
            let _ = self.commands.send(Command::Abort(self.id));
        }
    }
}

/// What runs on the thread.
struct Worker<R> {
    core: EngineCore<R>,
    streams: HashMap<RequestId, Sender<EngineEvent>>,
    counts: Arc<[AtomicUsize; 3]>,
    is_draining: bool,
}

impl<R: Runner> Worker<R> {
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
            Command::Generate(_, answer, _) if self.is_draining => drop(answer.send(Err(Error::EngineGone))),
            Command::Generate(request, answer, events) => {
                let id = self.core.add(*request);
                if let Ok(id) = &id {
                    self.streams.insert(*id, events);
                }
                let _ = answer.send(id);
            }
            Command::Abort(id) => {
                if let Ok(output) = self.core.abort(id) {
                    self.send(EngineEvent::Finished(output));
                }
            }
            Command::Drain => self.is_draining = true,
        }
        self.count();
    }

    fn step(&mut self) {
        let outcome = catch_unwind(AssertUnwindSafe(|| self.core.step()));
        // Before the events: who has read the last one finds the request gone.
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
        let (id, is_last) = match &event {
            EngineEvent::Finished(output) => (output.request, true),
            EngineEvent::Failed { request, .. } => (*request, true),
            EngineEvent::Token { request, .. }
            | EngineEvent::TextEnded { request, .. }
            | EngineEvent::ContextFull { request }
            | EngineEvent::Logits { request, .. } => (*request, false),
        };
        let stream = if is_last { self.streams.remove(&id) } else { self.streams.get(&id).cloned() };
        if let Some(stream) = stream {
            // A reader that is gone has aborted its request.
            let _ = stream.send(event);
        }
    }

    fn count(&self) {
        self.core.scheduler().counts().into_iter().zip(self.counts.iter()).for_each(|(n, count)| {
            count.store(n, Relaxed);
        });
    }
}
