//! The roofline of the machine, measured beside a model.

use super::CeilingsArg;
use crate::args::Global;
use crate::error::{Error, Exit, Result};
use crate::output::note;
use crate::setup;
use llmrt_cpu::ceiling::{self, Operations, Reads};
use llmrt_cpu::simd::Isa;
use llmrt_host::knobs;
use serde_json::{Value, json};

/// The parts that were requested.
#[derive(Clone, Copy)]
pub struct Ceilings {
    reads: Reads,
    operations: Option<Operations>,
}

impl Ceilings {
    /// Measures with the threads and the instruction set of the CPU, one second for each number.
    pub fn measure(global: &Global, which: CeilingsArg) -> Result<Ceilings> {
        setup::check_threads(global.threads)?;
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        let (isa, n_threads) = (isa(global)?, global.threads.unwrap_or_else(cores));
        let reads = ceiling::reads(isa, n_threads)
            .map_err(|e| Error::new(Exit::Memory, format!("--ceilings: {e}")))?;
        let operations = (which == CeilingsArg::All).then(|| ceiling::operations(isa, n_threads));
        Ok(Ceilings { reads, operations })
    }

    /// Numbers that were not measured are null.
    pub fn json(&self) -> Value {
        json!({
            "read_gb_s": self.reads.best_gb_s,
            "read_mean_gb_s": self.reads.mean_gb_s,
            "f32_gflop_s": self.operations.map(|o| o.f32_gflop_s),
            "int8_gop_s": self.operations.map(|o| o.int8_gop_s),
        })
    }

    /// A line on stderr.
    pub fn note(&self, n_threads: usize) {
        let Reads { best_gb_s, mean_gb_s } = self.reads;
        let reads = format!("{best_gb_s:.1} GB/s read from memory ({mean_gb_s:.1} over a second)");
        let operations = self.operations.map_or(String::new(), |o| {
            format!(", {:.0} GFLOP/s in F32, {:.0} Gop/s in int8", o.f32_gflop_s, o.int8_gop_s)
        });
        note(format_args!("at most, {n_threads} threads: {reads}{operations}"));
    }
}

/// The instruction set that is set for the CPU plugin, else the best.
fn isa(global: &Global) -> Result<Isa> {
    let named =
        global.plugin_option.iter().rev().find(|(key, _)| key == "cpu.isa").map(|(_, name)| name.clone());
    match named.or_else(|| knobs::plugin_option("cpu.isa")) {
        Some(name) => Isa::from_name(&name).map_err(|e| Error::usage(e.to_string())),
        None => Ok(Isa::fastest(ceiling::dot_speed)),
    }
}
