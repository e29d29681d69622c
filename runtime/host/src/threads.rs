//! The process's one thread pool: idle threads spin for a moment and then sleep; a run borrows a team of them.
//!
//! The caller is member 0 of its team. Runs from several threads take turns. A run from within a body gets threads
//! of its own, because the pool's are busy with the outer run. A panic in a body ends that member only: a member
//! that left its body counts as arrived at every barrier, and the Rust members leave at their next barrier.

mod barrier;

use crate::{Error, Result};
use barrier::Barrier;
use parking_lot::{Condvar, Mutex, RwLock, RwLockWriteGuard};
use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// What every member of a team runs.
pub type Body<'a> = dyn Fn(&Team<'_>) + Sync + 'a;

/// The pool. Threads start when a run first needs them.
pub struct ThreadPool {
    n_threads: AtomicUsize,
    /// Holding it is the right to run a team.
    workers: Mutex<Vec<Worker>>,
    shared: Arc<Shared>,
}

struct Worker {
    handle: std::thread::JoinHandle<()>,
    asleep: Arc<AtomicBool>,
}

/// What callers and workers share.
struct Shared {
    /// Run number, times 2^16, plus team size. Workers below the team size take part.
    epoch: AtomicU64,
    /// The current run; read only by members of its team, which the caller waits for.
    job: AtomicPtr<Job<'static>>,
    /// Members other than the caller that have not left yet.
    pending: AtomicUsize,
    caller_sleeps: AtomicBool,
    done_lock: Mutex<()>,
    done: Condvar,
    stop: AtomicBool,
    spin: Duration,
}

/// One run.
struct Job<'a> {
    body: &'a Body<'a>,
    n: usize,
    barrier: Barrier,
    failed: AtomicBool,
    message: Mutex<Option<String>>,
}

/// A member of a running team.
pub struct Team<'a> {
    index: usize,
    job: &'a Job<'a>,
}

/// Payload of the quiet unwinding that takes the others out of a body after one of them panicked.
struct Abandoned;

/// Most threads of a pool. Teams fit into 16 bits of the epoch.
pub const MAX_THREADS: usize = 1024;

thread_local! {
    /// Whether this thread is in the body of a team of two or more.
    static IN_TEAM: Cell<bool> = const { Cell::new(false) };
}

impl ThreadPool {
    /// A pool of `n_threads`, callers included; 0: one per core that this process may use.
    /// `spin` is how long an idle thread spins before it sleeps.
    pub fn new(n_threads: usize, spin: Duration) -> Arc<ThreadPool> {
        let shared = Shared {
            epoch: AtomicU64::new(0),
            job: AtomicPtr::default(),
            pending: AtomicUsize::new(0),
            caller_sleeps: AtomicBool::new(false),
            done_lock: Mutex::new(()),
            done: Condvar::new(),
            stop: AtomicBool::new(false),
            spin,
        };
        let n_threads = AtomicUsize::new(thread_count(n_threads));
        Arc::new(ThreadPool { n_threads, workers: Mutex::default(), shared: Arc::new(shared) })
    }

    /// Threads of the largest team, the caller included.
    pub fn n_threads(&self) -> usize {
        self.n_threads.load(Ordering::Relaxed)
    }

    /// Lets teams have at least `n_threads` members from now on.
    pub fn grow(&self, n_threads: usize) {
        self.n_threads.fetch_max(n_threads.min(MAX_THREADS), Ordering::Relaxed);
    }

    /// Runs `body` on a team of `n`, clamped to 1..=[`ThreadPool::n_threads`]; returns when all members have left it.
    pub fn run(&self, n: usize, body: &Body<'_>) -> Result<()> {
        let n = n.clamp(1, self.n_threads());
        if n > 1 && IN_TEAM.get() {
            return run_on_own_threads(body, n, self.shared.spin);
        }
        let job = Job::new(body, n, self.shared.spin);
        match n {
            1 => job.member(0),
            _ => self.run_on_workers(&job)?,
        }
        job.outcome()
    }

    fn run_on_workers(&self, job: &Job<'_>) -> Result<()> {
        let mut workers = self.workers.lock();
        self.start_workers(&mut workers, job.n - 1)?;

        let shared = &*self.shared;
        shared.pending.store(job.n - 1, Ordering::Relaxed);
        shared.job.store(std::ptr::from_ref(job).cast_mut().cast(), Ordering::Relaxed);
        let run = (shared.epoch.load(Ordering::Relaxed) >> 16) + 1;
        // SeqCst pairs with the worker's: either it loads the new epoch or this thread loads `asleep`. A swap here and
        // wherever a load of another variable follows: qemu 7.2 on x86 reorders an ARM store and such a load, and both
        // sides sleep.
        shared.epoch.swap(run << 16 | job.n as u64, Ordering::SeqCst);
        for worker in &workers[..job.n - 1] {
            if worker.asleep.load(Ordering::SeqCst) {
                worker.handle.thread().unpark();
            }
        }
        job.member(0);
        shared.wait_for_members();
        Ok(())
    }

    fn start_workers(&self, workers: &mut Vec<Worker>, n: usize) -> Result<()> {
        while workers.len() < n {
            let index = workers.len() + 1;
            let asleep = Arc::new(AtomicBool::new(false));
            let (shared, flag) = (self.shared.clone(), asleep.clone());
            // No run is under way, so whatever epoch is there now is none of the new worker's.
            let seen = shared.epoch.load(Ordering::Relaxed);
            let spawned = std::thread::Builder::new()
                .name(format!("llmrt-{index}"))
                .spawn(move || shared.work(index, seen, &flag));
            let handle = spawned.map_err(|e| Error::Threads {
                problem: format!(
                    "thread {index} of {n} did not start: {e}; use fewer threads (`-t`, LLMRT_THREADS), or raise the \
                     limits on processes and address space (`ulimit -u`, `ulimit -v`)"
                ),
            })?;
            workers.push(Worker { handle, asleep });
        }
        Ok(())
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.shared.epoch.fetch_add(1 << 16, Ordering::SeqCst);
        for worker in self.workers.lock().drain(..) {
            worker.handle.thread().unpark();
            // The last handle may be dropped on a worker, which cannot wait for itself.
            if worker.handle.thread().id() != std::thread::current().id() {
                let _ = worker.handle.join();
            }
        }
    }
}

impl Shared {
    /// A worker's life.
    fn work(&self, index: usize, mut seen: u64, asleep: &AtomicBool) {
        loop {
            seen = self.next_epoch(seen, asleep);
            if self.stop.load(Ordering::SeqCst) {
                return;
            }
            if index >= (seen & 0xffff) as usize {
                continue;
            }
            // SAFETY: this thread is a member of the current run, and the caller keeps the job until all members
            // have counted themselves out of `pending`.
            let job = unsafe { &*self.job.load(Ordering::Acquire) };
            job.member(index);
            if self.pending.fetch_sub(1, Ordering::SeqCst) == 1 && self.caller_sleeps.load(Ordering::SeqCst) {
                drop(self.done_lock.lock());
                self.done.notify_all();
            }
        }
    }

    /// Waits for an epoch other than `seen`: spins, then sleeps.
    fn next_epoch(&self, seen: u64, asleep: &AtomicBool) -> u64 {
        let changed = || self.epoch.load(Ordering::SeqCst) != seen;
        while !spin_until(self.spin, changed) {
            asleep.swap(true, Ordering::SeqCst);
            if !changed() {
                std::thread::park();
            }
            asleep.store(false, Ordering::SeqCst);
        }
        self.epoch.load(Ordering::SeqCst)
    }

    fn wait_for_members(&self) {
        let all_left = || self.pending.load(Ordering::SeqCst) == 0;
        if spin_until(self.spin, all_left) {
            return;
        }
        let mut guard = self.done_lock.lock();
        self.caller_sleeps.swap(true, Ordering::SeqCst);
        while !all_left() {
            self.done.wait(&mut guard);
        }
        self.caller_sleeps.store(false, Ordering::SeqCst);
    }
}

impl<'a> Job<'a> {
    fn new(body: &'a Body<'a>, n: usize, spin: Duration) -> Job<'a> {
        let barrier = Barrier::new(n, spin);
        Job { body, n, barrier, failed: AtomicBool::new(false), message: Mutex::default() }
    }

    /// One member's way through the body; never unwinds.
    fn member(&self, index: usize) {
        let outer = IN_TEAM.replace(IN_TEAM.get() || self.n > 1);
        let result = catch_unwind(AssertUnwindSafe(|| (self.body)(&Team { index, job: self })));
        IN_TEAM.set(outer);
        if let Err(payload) = result {
            self.keep(index, payload);
        }
        self.barrier.leave();
    }

    fn keep(&self, index: usize, payload: Box<dyn Any + Send>) {
        if !payload.is::<Abandoned>() {
            let text = payload.downcast_ref::<&str>().copied();
            let text =
                text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("(no text)");
            let message = format!("panic on thread {index} of {}: {text}", self.n);
            self.message.lock().get_or_insert(message);
            // Before `leave`, so that every member that passes the barrier sees it.
            self.failed.store(true, Ordering::Release);
        }
        // Dropping a payload runs code that may panic again.
        std::mem::forget(payload);
    }

    fn outcome(self) -> Result<()> {
        match self.message.into_inner() {
            None => Ok(()),
            Some(problem) => Err(Error::Threads { problem }),
        }
    }
}

impl Team<'_> {
    /// This member's number, from 0.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Members.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.job.n
    }

    /// Waits until every member has come here or left. Leaves the body if one of them panicked.
    pub fn barrier(&self) {
        self.wait();
        if self.job.failed.load(Ordering::Acquire) {
            resume_unwind(Box::new(Abandoned));
        }
    }

    /// The same without leaving: for bodies that must not unwind.
    pub(crate) fn wait(&self) {
        self.job.barrier.wait();
    }
}

/// A run from within a body: the pool's threads are busy, so this run starts its own. Where the system starts fewer,
/// the team is smaller: the calling thread alone in the worst case.
fn run_on_own_threads(body: &Body<'_>, n: usize, spin: Duration) -> Result<()> {
    // Started threads wait for the lock until the size of the team is certain.
    let job = RwLock::new(None);
    std::thread::scope(|scope| {
        let mut slot = job.write();
        let mut n_started = 1;
        for index in 1..n {
            let job = &job;
            let work = move || {
                let job = job.read();
                let job: &Option<Job<'_>> = &job;
                if let Some(job) = job {
                    job.member(index);
                }
            };
            if std::thread::Builder::new().spawn_scoped(scope, work).is_err() {
                break;
            }
            n_started += 1;
        }
        *slot = Some(Job::new(body, n_started, spin));
        let slot = RwLockWriteGuard::downgrade(slot);
        slot.iter().for_each(|job| job.member(0));
    });
    let job = job.into_inner();
    job.map_or(Ok(()), Job::outcome)
}

/// Whether `ready` became true within `spin`.
///
/// After a short burst the core is offered to others between looks: on a crowded machine the one waited for may be
/// queued after this thread, and on a quiet one the offer costs less than a microsecond.
fn spin_until(spin: Duration, ready: impl Fn() -> bool) -> bool {
    let mut until = None;
    loop {
        for _ in 0..256 {
            if ready() {
                return true;
            }
            std::hint::spin_loop();
        }
        if Instant::now() >= *until.get_or_insert_with(|| Instant::now() + spin) {
            return ready();
        }
        std::thread::yield_now();
    }
}

/// The requested count, or one per core.
fn thread_count(requested: usize) -> usize {
    let cores = || std::thread::available_parallelism().map_or(1, |n| n.get());
    if requested == 0 { cores() } else { requested }.min(MAX_THREADS)
}
