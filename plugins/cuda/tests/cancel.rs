//! Cancels of runs, on simulated cards whose kernels are slow.

mod common;

#[path = "../../cann/tests/common/cancelled.rs"]
mod cancelled;

use cancelled::Simulated;

/// All kernels but the last: the simulator counts no kernels while one runs.
const SIMULATED: Simulated = Simulated {
    queue: "late",
    slow_micros: 1000,
    counter: "kernels",
    counts_in_runs: false,
    n_nodes: 1500,
    max_kernels: 1499,
};
