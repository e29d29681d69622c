//! Cancels of runs, on simulated cards whose kernels are slow.

mod common;

#[path = "common/cancelled.rs"]
mod cancelled;

use cancelled::Simulated;
use llmrt_cann::plan::MAX_PART;

/// Two parts are in flight, a third is enqueued, and a fourth may end between the count and the cancel.
const SIMULATED: Simulated = Simulated {
    queue: "sync",
    slow_micros: 300,
    counter: "kernel",
    counts_in_runs: true,
    n_nodes: 4000,
    max_kernels: 4 * MAX_PART as u64,
};
