//! Captured graphs of plans: from its second run on a plan is recorded by the vendor's runtime and takes a launch per part.
//! A stream keeps a bounded number of graphs; the plan used least recently loses its graphs first.

use crate::Result;
use parking_lot::{Mutex, MutexGuard};
use std::sync::{Arc, Weak};

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
        self.0.lock()
    }

    /// Launches the captured graphs in order, if there are any, and stops at the first error.
    fn launch(&self, launch: impl FnMut(&G) -> Result<()>) -> Option<Result<()>> {
        let state = self.state();
        (!state.graphs.is_empty()).then(|| state.graphs.iter().try_for_each(launch))
    }

    /// The plan cannot be captured: its runs enqueue it from now on.
    fn refuse(&self) {
        self.state().refused = true;
    }
}

/// A plan that the vendor's runtime can record.
pub trait CapturedPlan {
    /// The plugin's stream.
    type Stream;
    /// A part of a plan as the runtime recorded it.
    type Graph;

    /// The plan's.
    fn slot(&self) -> &Arc<CaptureSlot<Self::Graph>>;

    /// The stream's.
    fn cache(stream: &mut Self::Stream) -> &mut CaptureCache<Self::Graph>;

    /// Graphs that a capture takes; 0: the plan is never captured.
    fn n_parts(&self) -> usize;

    /// Records the plan, a graph for each part. Nothing is enqueued.
    fn capture(&self, stream: &mut Self::Stream) -> Result<Vec<Self::Graph>>;

    /// Enqueues a recorded part for a run.
    fn launch(stream: &mut Self::Stream, part: &Self::Graph, run_id: u64) -> Result<()>;

    /// Enqueues the plan for a run, launch by launch.
    fn enqueue(&self, stream: &mut Self::Stream, run_id: u64) -> Result<()>;

    /// Enqueues the next run: its captured graphs, or launch by launch where it has none.
    fn run(&self, stream: &mut Self::Stream, run_id: u64) -> Result<()> {
        let slot = self.slot();
        if Self::cache(stream).begin_run(slot, self.n_parts()) {
            match self.capture(stream) {
                Ok(graphs) => Self::cache(stream).insert(slot, graphs),
                // What cannot be captured can still be launched, and returns its error there.
                Err(_) => slot.refuse(),
            }
        }
        let launched = slot.launch(|part| Self::launch(stream, part, run_id));
        launched.unwrap_or_else(|| self.enqueue(stream, run_id))
    }
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

    /// Counts a run of a plan whose capture takes `n_parts` graphs. Whether the plan is captured first.
    fn begin_run(&mut self, slot: &Arc<CaptureSlot<G>>, n_parts: usize) -> bool {
        let mut state = slot.state();
        state.n_runs += 1;
        let (is_captured, is_first) = (!state.graphs.is_empty(), state.n_runs == 1);
        let may_capture = !state.refused && (1..=self.max_graphs).contains(&n_parts);
        drop(state);
        if is_captured {
            self.touch(slot);
        }
        may_capture && !is_captured && !is_first
    }

    /// Keeps what was captured of a plan; graphs of the plans used least recently make room. More graphs than the limit are
    /// dropped, and the plan is not captured again.
    fn insert(&mut self, slot: &Arc<CaptureSlot<G>>, graphs: Vec<G>) {
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
    use crate::Error;

    /// A stream that logs, per run of a plan: e enqueued, c captured, l launched, a letter for each part.
    struct Stream {
        graphs: CaptureCache<u32>,
        log: String,
    }

    fn stream(max_graphs: usize) -> Stream {
        Stream { graphs: CaptureCache::new(max_graphs), log: String::new() }
    }

    /// A plan with these parts. A capture fails that has part 99; a launch fails of part 98.
    struct Plan {
        parts: Vec<u32>,
        slot: Arc<CaptureSlot<u32>>,
    }

    fn plan(parts: &[u32]) -> Plan {
        Plan { parts: parts.to_vec(), slot: Arc::default() }
    }

    impl CapturedPlan for Plan {
        type Stream = Stream;
        type Graph = u32;

        fn slot(&self) -> &Arc<CaptureSlot<u32>> {
            &self.slot
        }

        fn cache(stream: &mut Stream) -> &mut CaptureCache<u32> {
            &mut stream.graphs
        }

        fn n_parts(&self) -> usize {
            self.parts.len()
        }

        fn capture(&self, stream: &mut Stream) -> Result<Vec<u32>> {
            stream.log.push('c');
            if self.parts.contains(&99) { Err(Error::internal("refused")) } else { Ok(self.parts.clone()) }
        }

        fn launch(stream: &mut Stream, part: &u32, _run_id: u64) -> Result<()> {
            stream.log.push('l');
            if *part == 98 { Err(Error::internal("fails")) } else { Ok(()) }
        }

        fn enqueue(&self, stream: &mut Stream, _run_id: u64) -> Result<()> {
            stream.log.push('e');
            Ok(())
        }
    }

    /// Runs plan after plan.
    fn runs(stream: &mut Stream, plans: &[Plan], order: &[usize]) -> String {
        stream.log.clear();
        order.iter().for_each(|&i| plans[i].run(stream, 1).unwrap());
        stream.log.clone()
    }

    #[test]
    fn a_plan_is_captured_at_its_second_run() {
        assert_eq!(runs(&mut stream(2), &[plan(&[0])], &[0, 0, 0, 0]), "eclll");
        assert_eq!(runs(&mut stream(0), &[plan(&[0])], &[0, 0, 0]), "eee", "no room");
        assert_eq!(runs(&mut stream(2), &[plan(&[])], &[0, 0, 0]), "eee", "no parts");
    }

    #[test]
    fn the_plan_used_least_recently_is_evicted_and_counts_its_runs_again() {
        let (mut stream, plans) = (stream(2), [plan(&[0]), plan(&[1]), plan(&[2])]);
        assert_eq!(runs(&mut stream, &plans, &[0, 0, 1, 1, 0, 2, 2]), "eclecllecl");
        assert_eq!(stream.graphs.evicted, [1], "kept until the stream is idle");
        stream.graphs.drop_evicted();
        assert_eq!(stream.graphs.evicted, [0; 0]);
        assert_eq!(runs(&mut stream, &plans, &[0, 2, 1, 1]), "llecl");
    }

    #[test]
    fn graphs_are_counted_by_parts_and_an_error_of_one_ends_the_run() {
        let (mut stream, plans) = (stream(3), [plan(&[0]), plan(&[1, 2, 3, 4]), plan(&[7, 98, 9])]);
        assert_eq!(runs(&mut stream, &plans, &[0, 0, 1, 1]), "eclee", "more than all");
        assert_eq!(runs(&mut stream, &plans, &[2]), "e");
        assert_eq!(plans[2].run(&mut stream, 1).unwrap_err().message, "fails");
        assert_eq!((stream.log.as_str(), &stream.graphs.evicted[..]), ("ecll", &[0][..]));
    }

    #[test]
    fn what_was_refused_is_never_captured_again_and_what_is_gone_takes_no_room() {
        let (mut stream, mut plans) = (stream(1), vec![plan(&[99]), plan(&[1])]);
        assert_eq!(runs(&mut stream, &plans, &[0, 0, 0, 0, 1, 1]), "eceeeecl");
        plans.pop();
        plans.push(plan(&[2]));
        assert_eq!(runs(&mut stream, &plans, &[1, 1, 1]), "ecll");
        assert_eq!(stream.graphs.evicted, [0; 0]);
    }
}
