//! Captured graphs of plans: from its second run on a plan is recorded by the vendor's runtime and takes a launch per part.
//! A stream keeps a bounded number of graphs; the plan used least recently loses its graphs first.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// What a plan and its stream share: the graphs of the plan's parts, of the plugin's type `G`.
pub struct CaptureSlot<G>(Mutex<State<G>>);

struct State<G> {
    graphs: Vec<G>,
    /// Runs since the plan was made, or since its graphs were evicted.
    n_runs: usize,
    refused: bool,
}

impl<G> Default for CaptureSlot<G> {
    fn default() -> CaptureSlot<G> {
        CaptureSlot(Mutex::new(State { graphs: Vec::new(), n_runs: 0, refused: false }))
    }
}

impl<G> CaptureSlot<G> {
    fn state(&self) -> MutexGuard<'_, State<G>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Launches the captured graphs in order, if there are any, and stops at the first error.
    pub fn launch<E>(&self, launch: impl FnMut(&G) -> Result<(), E>) -> Option<Result<(), E>> {
        let state = self.state();
        (!state.graphs.is_empty()).then(|| state.graphs.iter().try_for_each(launch))
    }

    /// The plan cannot be captured: its runs enqueue it from now on.
    pub fn refuse(&self) {
        self.state().refused = true;
    }
}

/// How the next run of a plan is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextRun {
    /// By [`CaptureSlot::launch`].
    Launch,
    /// The plan is captured first, and given to [`CaptureCache::insert`].
    Capture,
    /// Launch by launch.
    Enqueue,
}

/// The captured graphs of a stream's plans.
pub struct CaptureCache<G> {
    max_graphs: usize,
    /// By last use, the latest at the end.
    slots: Vec<Weak<CaptureSlot<G>>>,
    /// Graphs whose launches may still run.
    evicted: Vec<G>,
}

impl<G> CaptureCache<G> {
    /// Of at most `max_graphs` graphs; 0: nothing is captured.
    pub fn new(max_graphs: usize) -> CaptureCache<G> {
        CaptureCache { max_graphs, slots: Vec::new(), evicted: Vec::new() }
    }

    /// Counts a run of a plan whose capture takes `n_parts` graphs.
    pub fn next_run(&mut self, slot: &Arc<CaptureSlot<G>>, n_parts: usize) -> NextRun {
        let mut state = slot.state();
        state.n_runs += 1;
        let (is_captured, is_first) = (!state.graphs.is_empty(), state.n_runs == 1);
        let may_capture = !state.refused && (1..=self.max_graphs).contains(&n_parts);
        drop(state);
        if is_captured {
            self.touch(slot);
            return NextRun::Launch;
        }
        if may_capture && !is_first { NextRun::Capture } else { NextRun::Enqueue }
    }

    /// Keeps what was captured of a plan; graphs of the plans used least recently make room. More graphs than the limit are
    /// dropped, and the plan is not captured again.
    pub fn insert(&mut self, slot: &Arc<CaptureSlot<G>>, graphs: Vec<G>) {
        if graphs.len() > self.max_graphs {
            return slot.refuse();
        }
        slot.state().graphs = graphs;
        self.touch(slot);
        let n_graphs =
            |slot: &Weak<CaptureSlot<G>>| slot.upgrade().map_or(0, |slot| slot.state().graphs.len());
        let mut total: usize = self.slots.iter().map(n_graphs).sum();
        while total > self.max_graphs && self.slots.len() > 1 {
            let oldest = self.slots.remove(0);
            total -= n_graphs(&oldest);
            let Some(oldest) = oldest.upgrade() else { continue };
            let mut state = oldest.state();
            state.n_runs = 0;
            self.evicted.append(&mut state.graphs);
        }
    }

    /// Destroys evicted graphs. For when the stream is idle.
    pub fn drop_evicted(&mut self) {
        self.evicted.clear();
    }

    fn touch(&mut self, slot: &Arc<CaptureSlot<G>>) {
        let is_it = |other: &Weak<CaptureSlot<G>>| std::ptr::eq(other.as_ptr(), Arc::as_ptr(slot));
        self.slots.retain(|other| !is_it(other) && other.strong_count() > 0);
        self.slots.push(Arc::downgrade(slot));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs plan after plan; per run: e enqueued, c captured, l launched.
    fn runs(cache: &mut CaptureCache<u32>, slots: &[Arc<CaptureSlot<u32>>], order: &[usize]) -> String {
        let run = |&i: &usize| match cache.next_run(&slots[i], 1) {
            NextRun::Enqueue => 'e',
            NextRun::Launch => 'l',
            NextRun::Capture => {
                cache.insert(&slots[i], vec![i as u32]);
                'c'
            }
        };
        order.iter().map(run).collect()
    }

    fn slots(n: usize) -> Vec<Arc<CaptureSlot<u32>>> {
        (0..n).map(|_| Arc::default()).collect()
    }

    #[test]
    fn a_plan_is_captured_at_its_second_run() {
        assert_eq!(runs(&mut CaptureCache::new(2), &slots(1), &[0, 0, 0, 0]), "ecll");
        assert_eq!(runs(&mut CaptureCache::new(0), &slots(1), &[0, 0, 0]), "eee");
    }

    #[test]
    fn the_plan_used_least_recently_is_evicted_and_counts_its_runs_again() {
        let (mut cache, slots) = (CaptureCache::new(2), slots(3));
        assert_eq!(runs(&mut cache, &slots, &[0, 0, 1, 1, 0, 2, 2]), "ececlec");
        assert_eq!(cache.evicted, [1], "kept until the stream is idle");
        cache.drop_evicted();
        assert_eq!(cache.evicted, [0; 0]);
        assert_eq!(runs(&mut cache, &slots, &[0, 2, 1, 1]), "llec");
    }

    #[test]
    fn graphs_are_counted_by_parts() {
        let (mut cache, slots) = (CaptureCache::new(3), slots(2));
        assert_eq!(runs(&mut cache, &slots, &[0, 0]), "ec");
        assert_eq!(
            (0..2).map(|_| cache.next_run(&slots[1], 4)).last(),
            Some(NextRun::Enqueue),
            "more than all"
        );
        assert_eq!(cache.next_run(&slots[1], 3), NextRun::Capture);
        cache.insert(&slots[1], vec![7, 8, 9]);
        assert_eq!(cache.evicted, [0]);
        let mut launched = vec![];
        let done = slots[1].launch(|graph| {
            if *graph < 9 {
                launched.push(*graph);
                Ok(())
            } else {
                Err("stop")
            }
        });
        assert_eq!((done, launched), (Some(Err("stop")), vec![7, 8]));
    }

    #[test]
    fn what_was_refused_is_never_captured_and_what_is_gone_takes_no_room() {
        let (mut cache, mut slots) = (CaptureCache::new(1), slots(2));
        slots[0].refuse();
        assert_eq!(runs(&mut cache, &slots, &[0, 0, 0, 1, 1]), "eeeec");
        slots.pop();
        slots.push(Arc::default());
        assert_eq!(runs(&mut cache, &slots, &[1, 1, 1]), "ecl");
        assert_eq!(cache.evicted, [0; 0]);
    }
}
