//! Runs cases in worker processes: a case that crashes or hangs costs its worker and nothing else.

use crate::catalogue::{Entry, Work};
use crate::child::{Child, Launch};
use crate::level::Level;
use crate::outcome::Outcome;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How cases are run.
pub struct Run<'a> {
    /// How a worker is started.
    pub launch: &'a Launch,
    /// Workers at a time.
    pub n_jobs: usize,
    /// What a case may take.
    pub limit: Duration,
    /// Failures after which no further case is begun.
    pub max_failures: usize,
    /// Called between cases; true ends the run early.
    pub is_cancelled: &'a (dyn Fn() -> bool + Sync),
    /// Called after every case: how many are done, and how many of them failed.
    pub progress: &'a (dyn Fn(usize, usize) + Sync),
}

impl Run<'_> {
    /// The outcome of every case, in their order; `None` for those not reached before the run ended early.
    pub fn outcomes(&self, entries: &[Entry]) -> Vec<Option<Outcome>> {
        let results: Mutex<Vec<Option<Outcome>>> = Mutex::new(vec![None; entries.len()]);
        let (n_done, n_failed) = (AtomicUsize::new(0), AtomicUsize::new(0));
        // What is measured runs alone.
        let (timed, others): (Vec<usize>, Vec<usize>) =
            (0..entries.len()).partition(|&i| entries[i].level == Level::L6);
        for (order, n_jobs) in [(others, self.n_jobs.max(1)), (timed, 1)] {
            let next = AtomicUsize::new(0);
            let work = || {
                let mut child = None;
                while let Some(&i) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if (self.is_cancelled)() || n_failed.load(Ordering::Relaxed) >= self.max_failures {
                        break;
                    }
                    let outcome = self.one(&mut child, &entries[i]);
                    let failed = usize::from(matches!(outcome, Outcome::Failed(_)));
                    results.lock().unwrap_or_else(PoisonError::into_inner)[i] = Some(outcome);
                    let n_failed = n_failed.fetch_add(failed, Ordering::Relaxed) + failed;
                    (self.progress)(n_done.fetch_add(1, Ordering::Relaxed) + 1, n_failed);
                }
            };
            std::thread::scope(|scope| (0..n_jobs.min(order.len())).for_each(|_| drop(scope.spawn(work))));
        }
        results.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// One case, on the worker at hand or a fresh one.
    fn one(&self, child: &mut Option<Child>, entry: &Entry) -> Outcome {
        if let Work::ProcessEnd = entry.work {
            return self.process_end(entry);
        }
        let worker = match child.take().map_or_else(|| Child::start(self.launch), Ok) {
            Ok(worker) => child.insert(worker),
            Err(e) => return Outcome::Failed(format!("no worker process could be started: {e}")),
        };
        let (outcome, fit) = worker.run(&entry.id(), self.limit, self.is_cancelled);
        if !fit {
            *child = None;
        }
        outcome
    }

    /// A process that used the plugin ends with exit code 0.
    fn process_end(&self, entry: &Entry) -> Outcome {
        let mut worker = match Child::start(self.launch) {
            Ok(worker) => worker,
            Err(e) => return Outcome::Failed(format!("no worker process could be started: {e}")),
        };
        match worker.run(&entry.id(), self.limit, self.is_cancelled) {
            (outcome, true) => match worker.end(self.limit) {
                Ok(()) => outcome,
                Err(why) => Outcome::Failed(format!("after the device was used: {why}")),
            },
            (outcome, false) => outcome,
        }
    }
}
