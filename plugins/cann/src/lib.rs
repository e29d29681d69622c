//! Huawei Ascend cards, through the vendor's libraries, which are opened at run time: this builds on any machine.
//!
//! Reading order: [`library`] for what is opened, [`runtime`] for its calls, [`chip`] for what differs between chips,
//! [`device`], [`buffer`], [`pinned`], [`stream`], [`event`] and [`memory`] for the objects the host sees, [`format`], [`layout`]
//! and [`repack`] for weights, [`operand`], [`call`] and [`ops`] for how a node becomes operators, [`plan`] for graphs that
//! run often, [`hccl`] for cards that put results together, [`options`] for what a person sets.

pub mod bench;
pub mod buffer;
pub mod call;
pub mod chip;
pub mod device;
pub mod error;
pub mod event;
pub mod format;
pub mod hccl;
pub mod layout;
pub mod layouts;
pub mod library;
pub mod memory;
pub mod operand;
pub mod ops;
pub mod options;
pub mod peers;
pub mod pinned;
pub mod plan;
pub mod probe;
pub mod release;
pub mod remember;
pub mod repack;
pub mod runtime;
pub mod stream;
pub mod sys;
pub mod tune;

use device::Card;
use llmrt_plugin::{Device, DevmemLimits, Driver, Host, Level, PluginInfo, Result};
use options::Options;
use runtime::Runtime;
use std::path::PathBuf;
use std::sync::Arc;

llmrt_plugin::export_plugin!(Cann);

/// The plugin.
pub struct Cann(Vec<Arc<dyn Device>>);

impl Driver for Cann {
    const INFO: PluginInfo =
        PluginInfo { name: "cann", version: env!("CARGO_PKG_VERSION"), vendor: "llmrt", needs_host: 0 };
    const DEVMEM: Option<DevmemLimits> = Some(memory::LIMITS);
    const COLLECTIVE: bool = true;

    /// Without the vendor's libraries there are no devices, and the log has the reason.
    fn init(host: Host) -> Result<Cann> {
        let options = Options::of(host)?;
        let folder = host.option("cann.lib_dir").map(PathBuf::from);
        let runtime = match Runtime::open(folder.as_deref()) {
            Ok(runtime) => runtime,
            Err(absent) => {
                host.log(Level::Warn, "cann", &format!("no devices: {}; {}", absent.reason, absent.hint));
                return Ok(Cann(Vec::new()));
            }
        };
        if let Some(warning) = &runtime.cann.warning {
            host.log(Level::Warn, "cann", warning);
        }
        let soc = runtime.soc_name();
        let card = |number: u32| {
            Arc::new(Card::new(host, &runtime, number as i32, &soc, options.clone())) as Arc<dyn Device>
        };
        Ok(Cann((0..runtime.n_devices()).map(card).collect()))
    }

    fn devices(&self) -> Vec<Arc<dyn Device>> {
        self.0.clone()
    }
}
