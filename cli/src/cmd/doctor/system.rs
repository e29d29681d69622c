//! Versions, environment variables, processor and memory.

use super::report::Report;
use crate::args::Global;
use crate::output::bytes;
use crate::setup::Plugins;
use llmrt_host::{knobs, system};

/// Less locked memory than this is too little for a model.
const SMALL_LOCK: u64 = 1 << 30;

/// llmrt's own version, and that of the interface to plugins.
pub fn versions(report: &Report) {
    let (major, minor) = (llmrt_abi::ABI_MAJOR, llmrt_abi::ABI_MINOR);
    report.ok("version", format_args!("llmrt {}, ABI {major}.{minor}", env!("CARGO_PKG_VERSION")));
}

/// The variables that are set, and values that they cannot have.
pub fn variables(report: &Report) {
    let set = knobs::set_variables();
    if set.is_empty() {
        report.ok("environment", "no variable of llmrt is set");
    }
    set.iter().for_each(|(name, text)| report.ok("environment", format_args!("{name}={text}")));
    if let Err(e) = knobs::settings() {
        report.problem("environment", format_args!("{e}; correct or unset the variable"));
    }
}

/// Features that kernels use, and the share of the machine's processors.
pub fn processor(report: &Report, global: &Global) {
    let features = system::cpu_features();
    // The least that there are fast kernels for.
    let is_fast = ["avx2", "neon"].iter().any(|name| features.contains(name));
    let names = features.join(" ");
    match is_fast {
        true => report.ok("processor", format_args!("features {names}")),
        false => report.warning(
            "processor",
            format_args!("features {names}: without AVX2 or NEON scalar kernels run, which are slow"),
        ),
    }
    let n_threads = knobs::settings().map_or(0, |settings| settings.n_threads);
    let n_threads = global.threads.unwrap_or(n_threads);
    let n_cores = std::thread::available_parallelism().map_or(1, usize::from);
    let n_used = if n_threads == 0 { n_cores } else { n_threads };
    match system::quota().processors {
        Some(n) if (n_used as f64) > n.ceil() => report.warning(
            "processor",
            format_args!(
                "{n_used} threads, and the control group has time for {n:.1} processors: set -t {}",
                n.ceil()
            ),
        ),
        _ if n_used > n_cores => {
            report.warning("processor", format_args!("{n_used} threads on {n_cores} cores: lower -t"));
        }
        _ => report.ok("processor", format_args!("{n_used} threads on {n_cores} cores")),
    }
}

/// Memory of the machine, as the CPU's device has it, and its limits for this process.
pub fn memory(report: &Report, plugins: Option<&Plugins>) {
    let cpu = plugins.and_then(|plugins| plugins.host.device("cpu"));
    if let Some((free, total)) = cpu.and_then(|cpu| cpu.memory().ok()) {
        let text = format!("{} of {} available", bytes(free), bytes(total));
        match free < total / 20 {
            true => report.warning("memory", format_args!("{text}: end programs that are not needed")),
            false => report.ok("memory", text),
        }
    }
    let quota = system::quota();
    if let Some(limit) = quota.memory {
        let used = quota.memory_used.unwrap_or(0);
        let text =
            format!("the control group's limit is {}, of which {} are in use", bytes(limit), bytes(used));
        match used > limit / 20 * 19 {
            true => {
                report.warning("memory", format_args!("{text}: raise the limit of the container or service"))
            }
            false => report.ok("memory", text),
        }
    }
    match system::memlock_limit() {
        Some(n) if n < SMALL_LOCK => report.ok(
            "memory",
            format_args!("{} can be locked: --mlock needs more (`ulimit -l unlimited`)", bytes(n)),
        ),
        Some(n) => report.ok("memory", format_args!("{} can be locked", bytes(n))),
        None => report.ok("memory", "locked memory has no limit"),
    }
}
