//! The CPU as a plugin: every op, on host memory, with the host's threads.
//!
//! Reading order: [`device`] for what it offers, [`stream`] for how a graph runs on a team of threads, `ops/<op>.rs`
//! for each op, [`quant`] for weights of few bits, `sealed/` for their layout in memory, [`simd`] for the vectors all kernels are written over.
//! Results do not depend on the instruction set, the number of threads, or what else is in the batch.

// Kernels index several arrays by one number; iterators would hide which.
#![allow(clippy::needless_range_loop)]

pub mod device;
pub mod stream;

mod barrier;
pub mod buffer;
mod cancel;
pub mod ceiling;
mod ops;
pub mod quant;
mod scratch;
mod sealed;
pub mod simd;
mod tensor;

use device::Cpu;
use llmrt_plugin::{Device, Driver, Error, Host, PluginInfo, Result};
use simd::Isa;
use std::sync::Arc;

/// The plugin.
pub struct CpuDriver {
    device: Arc<Cpu>,
}

impl Driver for CpuDriver {
    const INFO: PluginInfo =
        PluginInfo { name: "cpu", version: env!("CARGO_PKG_VERSION"), vendor: "llmrt", needs_host: 0 };

    fn init(host: Host) -> Result<CpuDriver> {
        let isa = match host.option("cpu.isa") {
            Some(name) => Isa::from_name(&name).map_err(|e| Error::invalid(e.to_string()))?,
            None => Isa::fastest(ceiling::dot_speed),
        };
        Ok(CpuDriver { device: Arc::new(Cpu::new(host, isa)) })
    }

    fn devices(&self) -> Vec<Arc<dyn Device>> {
        vec![self.device.clone()]
    }
}

llmrt_plugin::plugin_table!(CpuDriver);
