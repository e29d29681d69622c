//! A queue of commands with a thread of its own: each runs after the one before, at the time that the profile sets.
//!
//! An error skips what is queued after it. One of call scope is returned once, by the next wait; any other stays.

use crate::profile::When;
use crate::run::{Run, pause};
use llmrt_plugin::{Error, Result, Scope};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// One command; `W` is what the queue's thread works with.
pub type Task<W> = Box<dyn FnOnce(&mut W) -> Result<()> + Send>;

/// A queue. Dropping it runs what is left.
pub struct Queue<W> {
    shared: Arc<Shared<W>>,
    thread: Option<JoinHandle<()>>,
}

struct Shared<W> {
    state: Mutex<State<W>>,
    changed: Condvar,
    when: When,
}

struct State<W> {
    tasks: VecDeque<(Option<Run>, Task<W>)>,
    /// Commands put in, allowed to run, and done, since the beginning.
    n_pushed: u64,
    n_released: u64,
    n_done: u64,
    failed: Option<Error>,
    closing: bool,
}

/// A place in a queue: everything that was put in before it.
#[derive(Clone)]
pub struct Mark {
    queue: Arc<dyn Waiting>,
    at: u64,
}

/// A queue of any kind, to wait for.
trait Waiting: Send + Sync {
    fn wait(&self, at: u64, until: Option<Instant>) -> Result<bool>;
    fn n_pushed(&self) -> u64;
}

/// A queue that may be gone.
#[derive(Clone)]
pub struct Watch(Weak<dyn Waiting>);

impl Watch {
    /// Whether the queue is there, or a wait for a place in it is going on.
    pub fn is_alive(&self) -> bool {
        self.0.strong_count() > 0
    }

    /// Waits for everything put in so far; errors are returned by other waits.
    pub fn wait(&self) {
        if let Some(queue) = self.0.upgrade() {
            let _ = queue.wait(queue.n_pushed(), None);
        }
    }
}

impl Mark {
    /// Waits until the place is reached, at most this long; whether it was.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<bool> {
        self.queue.wait(self.at, timeout.and_then(|t| Instant::now().checked_add(t)))
    }
}

impl<W: Send + 'static> Queue<W> {
    /// A queue whose thread works with `worker`; `seed` is that of its delays.
    pub fn new(worker: W, when: When, seed: u64) -> Result<Queue<W>> {
        let state = State {
            tasks: VecDeque::new(),
            n_pushed: 0,
            n_released: 0,
            n_done: 0,
            failed: None,
            closing: false,
        };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new(), when });
        let run = {
            let shared = shared.clone();
            move || shared.run(worker, seed)
        };
        let thread = std::thread::Builder::new().name("llmrt-sim".into()).spawn(run);
        let thread = thread.map_err(|e| Error::internal(format!("a queue gets no thread: {e}")))?;
        Ok(Queue { shared, thread: Some(thread) })
    }

    /// Puts a command in; `run` is the one that it belongs to, if that is known.
    pub fn push(&self, run: Option<Run>, task: Task<W>) -> Result<()> {
        let mut state = self.shared.lock();
        if let Some(e) = state.failed.as_ref().filter(|e| e.scope != Scope::Call) {
            return Err(e.clone());
        }
        state.tasks.push_back((run, task));
        state.n_pushed += 1;
        if self.shared.when != When::AtSync {
            state.n_released = state.n_pushed;
        }
        self.shared.changed.notify_all();
        Ok(())
    }

    /// The place after everything put in so far.
    pub fn mark(&self) -> Mark {
        Mark { at: self.shared.lock().n_pushed, queue: self.shared.clone() }
    }

    /// For objects that must outlive its work.
    pub fn watch(&self) -> Watch {
        let queue: Arc<dyn Waiting> = self.shared.clone();
        Watch(Arc::downgrade(&queue))
    }

    /// Waits for everything put in so far, and returns the first error.
    pub fn synchronize(&self) -> Result<()> {
        let outcome = self.mark().wait(None);
        let mut state = self.shared.lock();
        if state.failed.as_ref().is_some_and(|e| e.scope == Scope::Call) {
            state.failed = None;
        }
        outcome.map(|_| ())
    }
}

impl<W> Shared<W> {
    /// The thread: one command after the other, until the queue is dropped and empty.
    fn run(&self, mut worker: W, seed: u64) {
        let mut random = Random(seed);
        while let Some((run, task)) = self.next() {
            let skip = self.lock().failed.is_some();
            if let When::Delayed(most) = self.when {
                let time = most.mul_f64(random.next());
                pause(if skip { Duration::ZERO } else { time }, run);
            }
            let outcome = if skip { Ok(()) } else { contained(|| task(&mut worker)) };
            let mut state = self.lock();
            if let Err(e) = outcome {
                state.failed.get_or_insert(e);
            }
            state.n_done += 1;
            drop(state);
            self.changed.notify_all();
        }
    }

    /// The next command that may run.
    fn next(&self) -> Option<(Option<Run>, Task<W>)> {
        let mut state = self.lock();
        loop {
            if state.n_done < state.n_released {
                return state.tasks.pop_front();
            }
            if state.closing && state.n_done == state.n_pushed {
                return None;
            }
            self.changed.wait(&mut state);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<W>> {
        self.state.lock()
    }
}

impl<W: Send + 'static> Waiting for Shared<W> {
    fn n_pushed(&self) -> u64 {
        self.lock().n_pushed
    }

    fn wait(&self, at: u64, until: Option<Instant>) -> Result<bool> {
        let mut state = self.lock();
        state.n_released = state.n_released.max(at);
        self.changed.notify_all();
        while state.n_done < at {
            match until {
                None => self.changed.wait(&mut state),
                Some(until) => {
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Ok(false);
                    }
                    self.changed.wait_for(&mut state, left);
                }
            }
        }
        state.failed.clone().map_or(Ok(true), Err)
    }
}

impl<W> Drop for Queue<W> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.n_released = state.n_pushed;
        state.closing = true;
        drop(state);
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // It ended by itself; a panic was returned as an error.
            let _ = thread.join();
        }
    }
}

/// A panic of a command breaks the plugin, as one in a call does.
fn contained(body: impl FnOnce() -> Result<()>) -> Result<()> {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|payload| {
        let text = payload.downcast_ref::<&str>().copied().map(String::from);
        let text = text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_default();
        std::mem::forget(payload);
        Err(Error::internal(format!("panic in a queue: {text}")).scope(Scope::Plugin))
    })
}

/// Numbers from 0 to 1 (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Log = Arc<Mutex<String>>;

    fn queue(when: When, seed: u64) -> Queue<()> {
        Queue::new((), when, seed).unwrap()
    }

    fn append(queue: &Queue<()>, log: &Log, word: char) {
        let log = log.clone();
        queue
            .push(
                None,
                Box::new(move |()| {
                    log.lock().push(word);
                    Ok(())
                }),
            )
            .unwrap();
    }

    fn wait_for(queue: &Queue<()>, mark: Mark) {
        queue.push(None, Box::new(move |()| mark.wait(None).map(|_| ()))).unwrap();
    }

    #[test]
    fn commands_of_one_queue_run_in_order_in_every_mode() {
        for when in [When::Now, When::Delayed(Duration::from_micros(300)), When::AtSync] {
            let (queue, log) = (queue(when, 3), Log::default());
            "abcdef".chars().for_each(|word| append(&queue, &log, word));
            queue.synchronize().unwrap();
            assert_eq!(*log.lock(), "abcdef", "{when:?}");
        }
    }

    #[test]
    fn at_sync_nothing_runs_before_the_host_waits() {
        let (queue, log) = (queue(When::AtSync, 0), Log::default());
        append(&queue, &log, 'a');
        let mark = queue.mark();
        append(&queue, &log, 'b');
        std::thread::sleep(Duration::from_millis(5));
        assert_eq!(*log.lock(), "");
        assert!(mark.wait(None).unwrap());
        assert_eq!(*log.lock(), "a");
    }

    #[test]
    fn queues_overtake_each_other_unless_a_mark_orders_them() {
        for ordered in [false, true] {
            let (first, second, log) = (queue(When::AtSync, 0), queue(When::AtSync, 0), Log::default());
            append(&first, &log, 'a');
            if ordered {
                wait_for(&second, first.mark());
            }
            append(&second, &log, 'b');
            second.synchronize().unwrap();
            first.synchronize().unwrap();
            assert_eq!(*log.lock(), if ordered { "ab" } else { "ba" });
        }
    }

    #[test]
    fn an_error_of_a_command_is_returned_by_the_next_wait_and_skips_what_follows() {
        let (queue, log) = (queue(When::Now, 0), Log::default());
        queue.push(None, Box::new(|()| Err(Error::cancelled()))).unwrap();
        append(&queue, &log, 'a');
        assert_eq!(queue.synchronize(), Err(Error::cancelled()));
        append(&queue, &log, 'b');
        queue.synchronize().unwrap();
        assert_eq!(*log.lock(), "b");
    }

    #[test]
    fn an_error_of_the_whole_queue_stays_and_reaches_queues_that_wait_for_it() {
        let (broken, other) = (queue(When::Now, 0), queue(When::Now, 0));
        broken.push(None, Box::new(|()| panic!("out of range"))).unwrap();
        wait_for(&other, broken.mark());
        for _ in 0..2 {
            let e = broken.synchronize().unwrap_err();
            assert!(e.message.contains("out of range") && e.scope == Scope::Plugin, "{e:?}");
        }
        assert!(broken.push(None, Box::new(|()| Ok(()))).is_err());
        assert!(other.synchronize().is_err());
    }

    #[test]
    fn waiting_ends_when_the_time_is_over() {
        let queue = queue(When::Now, 0);
        queue
            .push(
                None,
                Box::new(|()| {
                    std::thread::sleep(Duration::from_millis(50));
                    Ok(())
                }),
            )
            .unwrap();
        assert_eq!(queue.mark().wait(Some(Duration::from_millis(1))), Ok(false));
        assert_eq!(queue.mark().wait(None), Ok(true));
    }
}
