//! The smallest plugin: one device with memory of its own that claims no op. Copy this folder to start a driver.
//!
//! Three objects: [`Null`] finds devices, [`NullDevice`] describes one and creates [`Memory`] and streams.
//! README.md lists what to change, in which order.

mod memory;
mod stream;

use llmrt_plugin::abi::types::{DEVICE_ACCEL, USAGE_WEIGHTS};
use llmrt_plugin::{
    Buffer, BufferTypeInfo, Device, DeviceInfo, Driver, GraphView, Host, Level, PluginInfo, Reason, Result,
    Stream, StreamParams, Verdict,
};
use memory::Memory;
use std::sync::Arc;
use stream::NullStream;

// Below every device that computes something.
llmrt_plugin::export_plugin!(Null, priority = "-100");

/// The plugin.
pub struct Null;

impl Driver for Null {
    const INFO: PluginInfo = PluginInfo {
        name: "null",
        version: env!("CARGO_PKG_VERSION"),
        vendor: "llmrt",
        needs_host: 0, // `abi::types::NEEDS_*` bits, when the plugin cannot do without
    };

    fn init(host: Host) -> Result<Null> {
        // Load the vendor's library here and count devices; create nothing on them yet.
        host.log(Level::Debug, "null", "one device, which does nothing");
        Ok(Null)
    }

    fn devices(&self) -> Vec<Arc<dyn Device>> {
        vec![Arc::new(NullDevice)]
    }
}

struct NullDevice;

/// Reported memory of a device, in bytes.
const MEMORY: u64 = 1 << 30;

impl Device for NullDevice {
    fn info(&self) -> DeviceInfo {
        let memory = BufferTypeInfo {
            kind: llmrt_plugin::abi::types::BUFFER_DEVICE,
            flags: 0,
            alignment: 64,
            max_size: MEMORY,
            name: "null memory".into(),
        };
        DeviceInfo {
            description: "a device that claims no op".into(),
            memory_total: MEMORY,
            buffer_types: vec![memory],
            ..DeviceInfo::new(DEVICE_ACCEL, "0")
        }
    }

    fn memory(&self) -> Result<(u64, u64)> {
        Ok((MEMORY - memory::in_use(), MEMORY)) // free, total
    }

    fn supports(&self, _graph: &GraphView<'_>, _node: usize) -> Verdict {
        // A real driver: `match node.op()`, then dtypes, shapes and strides; `Verdict::YES` is a promise.
        Verdict::no(Reason::Op)
    }

    fn alloc(&self, _bt: u32, size: u64, usage: u32) -> Result<Box<dyn Buffer>> {
        let _for_weights = usage == USAGE_WEIGHTS; // some devices put weights elsewhere
        Ok(Box::new(Memory::new(size)?))
    }

    fn stream(&self, _params: &StreamParams) -> Result<Box<dyn Stream>> {
        Ok(Box::new(NullStream))
    }
}
