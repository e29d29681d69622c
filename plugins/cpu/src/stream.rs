//! How a graph runs: one team of threads walks the nodes together, waiting for each other only where a node needs
//! what another thread may still be writing (or overwrites what it may still be reading).

use crate::barrier::{Arrivals, Member};
use crate::cancel::Cancel;
use crate::ops::{self, Args, Output, Prepared, Rank, Taken, Worker};
use crate::scratch::{Scratch, Shared};
use crate::simd::{Isa, prefetch, prefetch_all};
use llmrt_plugin::abi::types::TENSOR_WEIGHT;
use llmrt_plugin::{Error, GraphView, Host, NodeView, Op, Result, Stream, Threads};
use parking_lot::Mutex;
use std::ops::Range;

/// A stream of the CPU. Work is done when `compute` returns.
pub struct CpuStream {
    cancel: Cancel,
    threads: Option<Threads>,
    n_threads: usize,
    isa: Isa,
    scratch: Vec<Mutex<Scratch>>,
    shared: Shared,
    arrivals: Arrivals,
    steps: Vec<Step>,
    /// Identity of the graph that the steps were made of: what it is, and where its tensors are.
    bound: Option<(u64, u64)>,
    /// Whether the graph is too small for a team.
    alone: bool,
}

/// Multiplications that one thread does before a team has met at every node: some tens of microseconds.
const WORTH_A_TEAM: u64 = 1 << 19;

/// Multiplications from which a node takes a millisecond or more.
const IS_LONG: u64 = 1 << 24;

/// A node, ready to run.
struct Step {
    args: Args,
    /// Whether it takes so long that its pieces look whether the run is cancelled.
    is_long: bool,
    /// Whether one thread does it all.
    solo: bool,
    /// Whether a barrier precedes it.
    wait: bool,
    /// Whether its activations are prepared already: a step before did it, and nothing wrote to them since. If they are in the
    /// team's memory, all met since then, and whatever writes there next waits for this step; if each thread has its own,
    /// all made them, since no product of a team is `solo`.
    is_prepared: bool,
    /// Addresses of the first short tensor of weights that it reads.
    vector: Range<usize>,
    /// The next `mul_mat`, this one or one after it.
    next_product: Option<usize>,
    /// What is taken of each thread's share, for ops that hand out pieces.
    taken: Vec<Taken>,
}

impl CpuStream {
    /// A stream on `n_threads` of the host's threads (0: all); on the caller's alone if the host has none.
    pub fn new(host: Host, isa: Isa, n_threads: usize) -> CpuStream {
        let threads = host.threads();
        let available = threads.map_or(1, |t| t.n_threads());
        let n_threads = if n_threads == 0 { available } else { n_threads.min(available) };
        let scratch = (0..n_threads).map(|_| Mutex::default()).collect();
        CpuStream {
            cancel: Cancel::new(host),
            threads,
            n_threads,
            isa,
            scratch,
            shared: Shared::default(),
            arrivals: Arrivals::default(),
            steps: Vec::new(),
            bound: None,
            alone: true,
        }
    }

    /// Binds all nodes to their memory and decides where barriers are.
    fn prepare(&mut self, graph: &GraphView<'_>) -> Result<()> {
        self.arrivals.reset();
        // Graphs that are not known again have no `uid`.
        let identity = (graph.uid() != 0).then(|| (graph.uid(), graph.binding_gen()));
        if identity.is_some() && identity == self.bound {
            self.steps.iter_mut().flat_map(|step| &mut step.taken).for_each(Taken::reset);
            return Ok(());
        }
        self.bound = None;
        self.steps.clear();
        let work = graph.nodes().map(|node| ops::work(&node)).fold(0, u64::saturating_add);
        self.alone = self.n_threads == 1 || work < WORTH_A_TEAM;
        let (mut since_wait, mut held) = (0, None);
        for (i, node) in graph.nodes().enumerate() {
            let args = Args::bind(&node).map_err(|e| e.at_node(i))?;
            let solo = self.alone || ops::is_small(&args);
            self.shared.reserve(ops::shared_bytes(&args));
            let prepares = Prepared::by(&args);
            let is_prepared = prepares.is_some_and(|p| p.is_for_others()) && prepares == held;
            let writes_shared = !is_prepared && ops::shared_bytes(&args) > 0;
            held = prepares.or(held.filter(|held| !(writes_shared && held.is_shared())));
            held = held.filter(|held: &Prepared| held.survives(&args.dst.span()));
            let wait = self.steps[since_wait..].iter().any(|before| {
                let shared = writes_shared && ops::shared_bytes(&before.args) > 0;
                !(solo && before.solo) && (shared || conflict(&before.args, &args))
            });
            if wait {
                since_wait = i;
            }
            let taken = (0..self.n_threads).map(|_| Taken::default()).collect();
            let vector = short_weights(&node, &args);
            let is_long = ops::work(&node) >= IS_LONG;
            self.steps.push(Step {
                args,
                is_long,
                solo,
                wait,
                is_prepared,
                vector,
                next_product: None,
                taken,
            });
        }
        let mut next = None;
        for (i, step) in self.steps.iter_mut().enumerate().rev() {
            next = if step.args.op == Op::MulMat { Some(i) } else { next };
            step.next_product = next;
        }
        self.bound = identity;
        Ok(())
    }

    /// Prefetches the descriptions of the two steps after this one: all weights have passed through the caches since they ran
    /// last. Each step is prefetched twice, as the weights of a product before its turn evict it again.
    fn prefetch_steps_after(&self, i: usize, index: usize) {
        for step in self.steps[i + 1..].iter().take(2) {
            let start = std::ptr::from_ref(step).addr();
            prefetch_all(start..start + size_of::<Step>());
        }
        if let Some(next) = self.steps.get(i + 1) {
            prefetch(std::ptr::from_ref(&next.taken[index]).cast());
            prefetch_all(next.vector.clone());
        }
    }

    /// Addresses of the weights that a member reads next.
    fn next_weights(&self, step: &Step, index: usize, n: usize) -> Range<usize> {
        let product = step.next_product.map(|i| &self.steps[i]).filter(|product| !product.solo);
        product.map_or(0..0, |product| ops::mul_mat::weights_of(&product.args, index, n))
    }

    /// One member's walk through the nodes.
    fn walk(&self, index: usize, n: usize, barrier: &dyn Fn()) {
        let mut member = Member::new(&self.arrivals, n, barrier);
        let mut n_barriers = 0;
        let mut scratch = self.scratch[index].lock();
        for (i, step) in self.steps.iter().enumerate() {
            self.prefetch_steps_after(i, index);
            if step.wait {
                n_barriers += 1;
                if index == 0 {
                    self.cancel.announce(n_barriers);
                }
                member.wait(|| self.next_weights(step, index, n));
                if self.cancel.is_last(n_barriers) {
                    return;
                }
            } else if n == 1 && (step.is_long || i % 8 == 0) && self.cancel.poll() {
                return;
            }
            let (index, n) = match step.solo {
                true if index > 0 => continue,
                true => (0, 1),
                false => (index, n),
            };
            let rank = Rank::new(index, n);
            let mut worker = Worker {
                rank,
                isa: self.isa,
                barrier,
                scratch: &mut scratch,
                shared: &self.shared,
                is_prepared: step.is_prepared,
            };
            let cancel = step.is_long.then_some(&self.cancel);
            // SAFETY: `Args::bind` has the node supported. Each member passes here once per run, with an index of its own;
            // its counters, one per thread, were reset by `prepare`. Nodes that use its bytes are apart by barriers
            // (`conflict`), and so is the caller by the start and the end of the team.
            let out = unsafe { Output::new(&step.args.dst, rank, &step.taken, cancel) };
            ops::compute(&mut worker, &step.args, out);
        }
    }
}

/// Where the first short tensor of weights of a node is: a norm's vector, or what is added.
fn short_weights(node: &NodeView<'_>, args: &Args) -> Range<usize> {
    const SHORT: usize = 16 << 10;
    let is_weight = |i: &usize| node.src(*i).is_some_and(|t| t.flags() & TENSOR_WEIGHT != 0);
    let mut spans = (0..args.src.len()).filter(is_weight).map(|i| args.arg(i).span());
    spans.find(|span| span.len() <= SHORT).unwrap_or_default()
}

/// Whether `after` must not start before `before` has ended on all threads, because of the tensors they use.
fn conflict(before: &Args, after: &Args) -> bool {
    let (written, writes) = (before.dst.span(), after.dst.span());
    overlap(&written, &writes)
        || after.src().any(|src| overlap(&written, &src.span()))
        || before.src().any(|src| overlap(&writes, &src.span()))
}

fn overlap(a: &Range<usize>, b: &Range<usize>) -> bool {
    a.start < b.end && b.start < a.end
}

impl Stream for CpuStream {
    fn compute(&mut self, graph: &GraphView<'_>) -> Result<()> {
        self.cancel.begin(graph.run_id());
        if self.cancel.poll() {
            return Err(Error::cancelled());
        }
        self.prepare(graph)?;
        match self.threads {
            Some(threads) if !self.alone => {
                let this = &*self;
                threads
                    .run(self.n_threads, &|team| this.walk(team.index(), team.len(), &|| team.barrier()))?;
            }
            _ => self.walk(0, 1, &|| {}),
        }
        if self.cancel.seen() { Err(Error::cancelled()) } else { Ok(()) }
    }

    fn synchronize(&mut self) -> Result<()> {
        Ok(())
    }
}
