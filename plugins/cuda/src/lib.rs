//! NVIDIA cards, through the driver's library, which is opened at run time: this builds on any machine.
//!
//! Reading order: [`sys`] and [`tables`] for declarations, [`library`] for what is opened, [`driver`], [`gpu`] and [`peers`] for its calls, [`device`], [`buffer`],
//! [`pinned`], [`stream`], [`live`], [`event`] and [`memory`] for the objects the host sees, [`kernels`], [`nvrtc`],
//! [`archive`], [`image`], [`modules`] and [`trial`] for how kernels come to a card, [`call`] and [`ops`] for how a node
//! becomes launches, [`cublas`] for the vendor's products among them, [`plan`] for graphs that run often.

pub mod archive;
pub mod buffer;
pub mod call;
pub mod cublas;
pub mod cublas_product;
pub mod device;
pub mod driver;
pub mod error;
pub mod event;
pub mod gpu;
pub mod image;
pub mod kernels;
pub mod layout;
pub mod library;
pub mod live;
pub mod memory;
pub mod modules;
pub mod nvrtc;
pub mod ops;
pub mod peers;
pub mod pinned;
pub mod plan;
pub mod stream;
pub mod sys;
pub mod tables;
pub mod trial;

use cublas::CublasLibrary;
use device::GpuDevice;
use driver::CudaDriver;
use gpu::Gpu;
use image::Images;
use llmrt_plugin::{Device, DevmemLimits, Driver, Error, Host, Level, PluginInfo, Result};
use std::path::PathBuf;
use std::sync::Arc;
use stream::Settings;

/// Compute capability of the oldest chips that kernels are made for.
const LEAST: (i32, i32) = (7, 5);

llmrt_plugin::export_plugin!(CudaPlugin);

/// The plugin.
pub struct CudaPlugin(Vec<Arc<dyn Device>>);

impl Driver for CudaPlugin {
    const INFO: PluginInfo =
        PluginInfo { name: "cuda", version: env!("CARGO_PKG_VERSION"), vendor: "llmrt", needs_host: 0 };
    const DEVMEM: Option<DevmemLimits> = Some(memory::LIMITS);

    /// Without the driver there are no devices, and the log has the reason.
    fn init(host: Host) -> Result<CudaPlugin> {
        let folder = host.option("cuda.lib_dir").map(PathBuf::from);
        let driver = match CudaDriver::open(folder.as_deref()) {
            Ok(driver) => driver,
            Err(absent) => {
                host.log(Level::Warn, "cuda", &format!("no devices: {}; {}", absent.reason, absent.hint));
                return Ok(CudaPlugin(Vec::new()));
            }
        };
        let n_graphs = match host.option("cuda.graphs") {
            None => plan::GRAPHS,
            Some(text) => text.trim().parse().map_err(|_| {
                Error::invalid(format!(
                    "option cuda.graphs={text}: expected how many captured graphs a stream keeps; 0: none"
                ))
            })?,
        };
        let fuses = switch(host, "cuda.fuse", "neighbouring ops may become one kernel")?;
        let uses_cublas = switch(host, "cuda.cublas", "products of halves may go to cuBLASLt")?;
        let wgmma = switch(host, "cuda.wgmma", "products by wgmma where a card has it")?;
        let bf16_parts = bf16_parts(host.option("cuda.bf16_parts"))?;
        let settings = Settings { host, n_graphs, fuses, wgmma };
        let or_beside = |option| host.option(option).map(PathBuf::from).or(folder.clone());
        let compiler = or_beside("cuda.nvrtc_dir");
        let cublas = CublasLibrary::new(host, or_beside("cuda.cublas_dir"), driver.version(), uses_cublas);
        let cublas = Arc::new(cublas);
        let images = Arc::new(Images::new(host, compiler, driver.version()));
        let mut devices: Vec<Arc<dyn Device>> = Vec::new();
        for number in 0..driver.n_devices() {
            match Gpu::new(&driver, number, &cublas, bf16_parts) {
                Ok(gpu) if gpu.identity.capability < LEAST => {
                    let (major, minor) = gpu.identity.capability;
                    let text = format!(
                        "device {number} is left out: compute capability {major}.{minor} is below 7.5"
                    );
                    host.log(Level::Warn, "cuda", &text);
                }
                Ok(gpu) => devices.push(Arc::new(GpuDevice::new(gpu, &images, settings))),
                Err(e) => {
                    host.log(Level::Warn, "cuda", &format!("device {number} is left out: {}", e.message))
                }
            }
        }
        let version = driver.version();
        let text = format!("CUDA {}.{}, {} devices", version / 1000, version % 1000 / 10, devices.len());
        host.log(Level::Debug, "cuda", &text);
        Ok(CudaPlugin(devices))
    }

    fn devices(&self) -> Vec<Arc<dyn Device>> {
        self.0.clone()
    }
}

/// How many BF16 numbers a number of x becomes for products of many columns with BF16 weights.
fn bf16_parts(option: Option<String>) -> Result<usize> {
    match option.as_deref().map(str::trim) {
        None | Some("2") => Ok(2),
        Some("1") => Ok(1),
        Some(text) => Err(Error::invalid(format!(
            "option cuda.bf16_parts={text}: expected 2, x of prompts is two BF16 numbers, or 1, it is rounded to one"
        ))),
    }
}

/// An option that is 1, as if it were not there, or 0.
fn switch(host: Host, option: &str, meaning: &str) -> Result<bool> {
    match host.option(option).as_deref().map(str::trim) {
        None | Some("1") => Ok(true),
        Some("0") => Ok(false),
        Some(text) => Err(Error::invalid(format!("option {option}={text}: expected 1, {meaning}, or 0"))),
    }
}

#[cfg(test)]
mod tests {
    use super::bf16_parts;

    #[test]
    fn x_has_one_part_or_two() {
        let parts = |text: &str| bf16_parts(Some(text.into())).ok();
        assert_eq!((parts("1"), parts(" 2 "), bf16_parts(None).ok()), (Some(1), Some(2), Some(2)));
        let refused = bf16_parts(Some("3".into())).unwrap_err().message;
        assert!(refused.contains("cuda.bf16_parts=3") && refused.contains("expected 2"), "{refused}");
    }
}
